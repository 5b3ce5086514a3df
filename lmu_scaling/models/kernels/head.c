/* Softmax cross-entropy of a linear head with its gradients, without the logits (paper, section 5: 50,257 classes).

   A chunk of tokens at a time: exponentials of all classes, their sums and dh; then, the sums being known, dw.
     e [v][c] = exp(w h' - shift),  sum = 1 e,  dh = e' w / sum,  dw += e (h / sum).
   The shift only has to keep the sums finite: it is the largest logit of the first classes, and if that was far from
   the largest of all, the chunk is done again with the exact one.

   Layout: h, dh [tokens][d], w, dw [classes][d], d a multiple of W (the caller pads); e [classes][CHUNK]. */

#include "vector.h"

#define CHUNK 96   /* tokens: their exponentials are kept until the sums are known */
#define CLASSES 64 /* classes at a time: their weights and exponentials stay in the first-level cache */
#define SAFE 1e30f /* a larger sum of exponentials is not trusted */

typedef struct {
  const float *w;
  float *e, *columns, *rows, *sums, *dh, *dw; /* columns [d][CHUNK], rows [CHUNK][d]; a row of sums and dh per thread */
  float shift[CHUNK];
  long classes;
  int d, tokens;
  float scale;
} Head;

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
static void largest(Head *head, long classes, float *scratch) {
  const int vectors = (head->tokens + W - 1) / W;
  for (long first = 0; first < classes; first += CLASSES) {
    const long count = classes - first < CLASSES ? classes - first : CLASSES;
    product(head->w + first * head->d, head->d, 1, head->columns, CHUNK, head->d, scratch, count, vectors, 0);
    for (int j = 0; j < vectors; j++) {
      vec top = first ? load(head->shift + j * W) : load(scratch + j * W);
      for (long k = 0; k < count; k++) top = larger(top, load(scratch + k * CHUNK + j * W));
      store(head->shift + j * W, top);
    }
  }
}

/* Exponentials of a range of classes, with this thread's part of the sums and of dh. */
static int exponentials(const void *argument, int thread, long first, long last) {
  const Head *head = argument;
  const int d = head->d, vectors = (head->tokens + W - 1) / W;
  float *sums = head->sums + (ptrdiff_t)thread * CHUNK, *dh = head->dh + (ptrdiff_t)thread * CHUNK * d;
  for (long at = first; at < last; at++) {
    const long start = at * CLASSES, count = head->classes - start < CLASSES ? head->classes - start : CLASSES;
    const float *w = head->w + start * d;
    float *e = head->e + start * CHUNK;
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
    if (head->dw) product(e, 1, CHUNK, w, d, count, dh, head->tokens, d / W, 1);
  }
  return 0;
}

static int weights(const void *argument, int thread, long first, long last) {
  const Head *head = argument;
  (void)thread;
  for (long at = first; at < last; at++) {
    const long start = at * CLASSES, count = head->classes - start < CLASSES ? head->classes - start : CLASSES;
    product(head->e + start * CHUNK, CHUNK, 1, head->rows, head->d, head->tokens, head->dw + start * head->d, count,
            head->d / W, 1);
  }
  return 0;
}

/* One chunk of at most CHUNK tokens. Writes sum and shift, and dh if gradients are wanted. */
static void chunk(Head *head, const float *h, float *dh, float *sum, float *shift, int threads) {
  const int d = head->d, tokens = head->tokens;
  const long items = (head->classes + CLASSES - 1) / CLASSES;
  memset(head->columns, 0, (size_t)d * CHUNK * sizeof(float));
  for (int t = 0; t < tokens; t++)
    for (int c = 0; c < d; c++) head->columns[c * CHUNK + t] = h[(ptrdiff_t)t * d + c];
  for (int exact = 0, safe = 0; !safe; exact = 1) {
    largest(head, exact || head->classes < CLASSES ? head->classes : CLASSES, head->e);
    memset(head->dh, 0, (size_t)threads * CHUNK * ((size_t)d + 1) * sizeof(float)); /* and the sums behind it */
    lmu_share(exponentials, head, items, threads);
    safe = 1;
    for (int t = 0; t < tokens; t++) {
      sum[t] = 0;
      for (int i = 0; i < threads; i++) sum[t] += head->sums[i * CHUNK + t];
      safe &= exact || !(sum[t] > SAFE);
    }
  }
  memcpy(shift, head->shift, (size_t)tokens * sizeof(float));
  if (!head->dw) return;
  for (int t = 0; t < tokens; t++)
    for (int c = 0; c < d; c++) {
      float total = 0;
      for (int i = 0; i < threads; i++) total += head->dh[((ptrdiff_t)i * CHUNK + t) * d + c];
      dh[(ptrdiff_t)t * d + c] = total * (head->scale / sum[t]);
      head->rows[t * d + c] = h[(ptrdiff_t)t * d + c] * (head->scale / sum[t]);
    }
  lmu_share(weights, head, items, threads);
}

/* sum and shift [tokens]: the log of the softmax's denominator is log(sum) + shift. With dw (zero at first), also the
   gradients of the mean of that logarithm over the tokens; without, dh is not used. Returns 1 when memory ran out. */
int lmu_head(const float *h, const float *w, float *sum, float *shift, float *dh, float *dw, long tokens, long classes,
             int d, int threads) {
  Head head = {.w = w, .dw = dw, .classes = classes, .d = d, .scale = 1.0f / (float)tokens};
  const size_t own = (size_t)2 * d * CHUNK, each = (size_t)threads * CHUNK * (1 + (size_t)d);
  const size_t size = ((size_t)classes * CHUNK + own + each) * sizeof(float);
  float *scratch = aligned_alloc(64, (size + 63) / 64 * 64);
  if (!scratch) return 1;
  head.e = scratch;
  head.columns = head.e + classes * CHUNK;
  head.rows = head.columns + (ptrdiff_t)d * CHUNK;
  head.dh = head.rows + (ptrdiff_t)d * CHUNK;
  head.sums = head.dh + (ptrdiff_t)threads * CHUNK * d;
  for (long first = 0; first < tokens; first += CHUNK) {
    head.tokens = tokens - first < CHUNK ? (int)(tokens - first) : CHUNK;
    chunk(&head, h + first * d, dh + first * d, sum + first, shift + first, threads);
  }
  free(scratch);
  return 0;
}
