/* The head's loss in float32 with eight lanes, for any processor. Layouts: head.h. */

#include "head.h"

#define CHUNK 96   /* tokens: their exponentials are kept until the sums are known */
#define CLASSES 64 /* classes at a time: their weights and exponentials stay in the first-level cache */

/* out[i][j] = sum_k a[i, k] b[k][j] for `rows` x 8 `vectors` entries, all in registers; a is read with two strides. */
static inline __attribute__((always_inline)) void block(const float *a, ptrdiff_t row, ptrdiff_t step, const float *b,
                                                        ptrdiff_t width, long depth, vec out[4][3], const int rows,
                                                        const int vectors) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < vectors; j++) out[i][j] = all(0);
  for (long k = 0; k < depth; k++) {
    vec v[3];
    for (int j = 0; j < vectors; j++) v[j] = load(b + k * width + j * W);
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < vectors; j++) out[i][j] += a[i * row + k * step] * v[j];
  }
}

/* The same for any number of rows and vectors: out [rows][width], stored or added. */
static void product(const float *a, ptrdiff_t row, ptrdiff_t step, const float *b, ptrdiff_t width, long depth,
                    float *out, long rows, int vectors, int add) {
  vec sum[4][3];
  for (int j = 0; j < vectors; j += 3)
    for (long i = 0; i < rows; i += 4) {
      const int some = rows - i < 4 ? (int)(rows - i) : 4, wide = vectors - j < 3 ? vectors - j : 3;
      const float *from = a + i * row, *of = b + j * W;
      if (some == 4 && wide == 3) block(from, row, step, of, width, depth, sum, 4, 3);
      else if (some == 4 && wide == 2) block(from, row, step, of, width, depth, sum, 4, 2);
      else if (some == 4) block(from, row, step, of, width, depth, sum, 4, 1);
      else block(from, row, step, of, width, depth, sum, some, wide); /* the last few rows, not unrolled */
      for (int u = 0; u < some; u++)
        for (int v = 0; v < wide; v++) {
          float *to = out + (i + u) * width + (j + v) * W;
          store(to, add ? load(to) + sum[u][v] : sum[u][v]);
        }
    }
}

/* exp(x - shift), at most e^80: then the sum is not trusted. NaN stays NaN. */
static inline vec shifted_exponential(vec x, vec shift) {
  x -= shift;
  ivec high = x > all(80.0f);
  return exponential((vec)(((ivec)all(80.0f) & high) | ((ivec)x & ~high)));
}

/* The largest logit of each token among some classes. */
static void largest(Head *head, long classes) {
  const int d = head->d, vectors = (head->tokens + W - 1) / W;
  const float *w = head->w;
  float *scratch = head->e;
  for (long first = 0; first < classes; first += CLASSES) {
    const long count = classes - first < CLASSES ? classes - first : CLASSES;
    product(w + first * d, d, 1, head->columns, CHUNK, d, scratch, count, vectors, 0);
    for (int j = 0; j < vectors; j++) {
      vec top = first ? load(head->shift + j * W) : load(scratch + j * W);
      for (long k = 0; k < count; k++) top = larger(top, load(scratch + k * CHUNK + j * W));
      store(head->shift + j * W, top);
    }
  }
}

static void tile(const Head *head, long start, long count, float *sums, float *dh, int add) {
  const int d = head->d, vectors = (head->tokens + W - 1) / W;
  const float *w = (const float *)head->w + start * d;
  float *e = (float *)head->e + start * CHUNK;
  product(w, d, 1, head->columns, CHUNK, d, e, count, vectors, 0);
  for (int j = 0; j < vectors; j++) {
    vec total = {0}, shift = load(head->shift + j * W);
    for (long k = 0; k < count; k++) {
      vec value = shifted_exponential(load(e + k * CHUNK + j * W), shift);
      total += value;
      store(e + k * CHUNK + j * W, value);
    }
    store(sums + j * W, load(sums + j * W) + total);
  }
  if (head->dw) product(e, 1, CHUNK, w, d, count, dh, head->tokens, d / W, add);
}

static int exponentials(const void *argument, int thread, long first, long last) {
  const Head *head = argument;
  (void)thread;
  for (long part = first; part < last; part++) {
    const long from = part_start(head, part), to = part_start(head, part + 1);
    float *sums = head->sums + part * CHUNK, *dh = head->parts + part * CHUNK * head->d;
    memset(sums, 0, CHUNK * sizeof(float));
    for (long at = from; at < to; at += CLASSES) tile(head, at, to - at < CLASSES ? to - at : CLASSES, sums, dh, at > from);
  }
  return 0;
}

static int weights(const void *argument, int thread, long first, long last) {
  const Head *head = argument;
  const long start = part_start(head, first), end = part_start(head, last);
  (void)thread;
  for (long at = start; at < end; at += CLASSES) {
    const long count = end - at < CLASSES ? end - at : CLASSES;
    product((const float *)head->e + at * CHUNK, CHUNK, 1, head->rows, head->d, head->tokens, head->dw + at * head->d,
            count, head->d / W, !head->first);
  }
  return 0;
}

static void rows(const Head *head, const float *factor) {
  const float *h = head->h;
  for (long t = 0; t < head->tokens; t++)
    for (long c = 0; c < head->d; c++) ((float *)head->rows)[t * head->d + c] = h[t * head->d + c] * factor[t];
}

const HeadForm lmu_head_portable = {1, CHUNK, CLASSES, largest, exponentials, weights, rows};
