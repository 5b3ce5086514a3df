/* Causal softmax attention over a whole sequence, forward and backward, for narrow heads.

   O = softmax(Q K' / sqrt(e)) V, where a token sees itself and the tokens before it. Torch's kernel is made for heads of
   64 or more; those of small models have 8 to 51 channels. W queries at a time meet all their keys: their rows of
   scores stay in cache, no n x n matrix is held. The backward pass computes the scores again.

   Rotary positions (cosine and sine of each position and pair of channels) are applied to queries and keys as they are
   read, and undone on their gradients.

   Sequences and heads are independent, so the result does not depend on the number of threads. */

#include <math.h>

#include "vector.h"

#define R W          /* queries in a block: as many as lanes, so that only its last block of keys is masked */
#define ROWS (W / 2) /* of a block of a product: its sums fill three quarters of the registers */

typedef struct {
  const float *at;
  long batch, token, head; /* strides; channels are contiguous */
} Input;

typedef struct {
  Input q, k, v, g;        /* g: gradient of the output */
  const float *cosine, *sine; /* [n][e / 2], or NULL */
  float *o, *lse;          /* [batch][n][heads][e], [batch][heads][n]: the logarithm of a row's sum of exponentials */
  float *dq, *dk, *dv;     /* [batch][n][heads][e], or NULL: forward */
  long n;
  int heads, e;
} Job;

/* One head of one sequence, with rows padded to W tokens and W channels, and transposed where tokens are the lanes. */
typedef struct {
  long n, stride; /* of rows of tokens: not a power of two, whose rows would compete for the same places in the cache */
  int e;
  float *q, *k, *v, *g;       /* [n][e] */
  float *kt, *vt, *dkt, *dvt; /* [e][stride] */
  float *s, *ds, *row, *mean; /* [R][stride], [R][stride], [R][e], [n] */
} Head;

/* out[i][j] (+)= sum_k a[i, k] b[k][j] for ROWS rows and W `vectors` columns; a is read with two strides. */
static inline __attribute__((always_inline)) void block(const float *a, ptrdiff_t row, ptrdiff_t step, const float *b,
                                                        ptrdiff_t width, long depth, float *out, ptrdiff_t stride, int add,
                                                        const int vectors) {
  vec sum[ROWS][3];
  UNROLL for (int i = 0; i < ROWS; i++)
    UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = add ? load(out + i * stride + W * j) : all(0);
  for (long k = 0; k < depth; k++, a += step, b += width) {
    vec v[3];
    UNROLL for (int j = 0; j < vectors; j++) v[j] = load(b + W * j);
    UNROLL for (int i = 0; i < ROWS; i++)
      UNROLL for (int j = 0; j < vectors; j++) sum[i][j] += a[i * row] * v[j];
  }
  UNROLL for (int i = 0; i < ROWS; i++)
    UNROLL for (int j = 0; j < vectors; j++) store(out + i * stride + W * j, sum[i][j]);
}

/* The same for `rows`, a multiple of ROWS, and `columns`, a multiple of W. */
static void product(const float *a, ptrdiff_t row, ptrdiff_t step, const float *b, ptrdiff_t width, long depth, float *out,
                    ptrdiff_t stride, int add, long rows, long columns) {
  long j = 0;
  for (; j + 3 * W <= columns; j += 3 * W)
    for (long i = 0; i < rows; i += ROWS)
      block(a + i * row, row, step, b + j, width, depth, out + i * stride + j, stride, add, 3);
  for (; j + 2 * W <= columns; j += 2 * W)
    for (long i = 0; i < rows; i += ROWS)
      block(a + i * row, row, step, b + j, width, depth, out + i * stride + j, stride, add, 2);
  for (; j < columns; j += W)
    for (long i = 0; i < rows; i += ROWS)
      block(a + i * row, row, step, b + j, width, depth, out + i * stride + j, stride, add, 1);
}

/* Turns one vector by its position's angles; `back`: the other way. */
static void rotate(float *x, const Job *job, long t, int back) {
  const int half = job->e / 2;
  const float *cosine = job->cosine + t * half, *sine = job->sine + t * half;
  for (int c = 0; c < half; c++) {
    const float a = x[c], b = x[c + half], s = back ? -sine[c] : sine[c];
    x[c] = a * cosine[c] - b * s;
    x[c + half] = b * cosine[c] + a * s;
  }
}

/* Reads one head of one sequence into rows [n][e], scaled and rotated. The padding of `rows` is zero. */
static void read_rows(const Job *job, Input from, long batch, int head, float *rows, int width, float scale, int turn) {
  const float *at = from.at + batch * from.batch + head * from.head;
  for (long t = 0; t < job->n; t++, at += from.token, rows += width) {
    for (int c = 0; c < job->e; c++) rows[c] = scale * at[c];
    if (turn && job->cosine) rotate(rows, job, t, 0);
  }
}

/* to[j][i] = from[i][j]; rows and columns are multiples of W. */
static void transpose_all(const float *from, ptrdiff_t from_stride, long rows, long columns, float *to, ptrdiff_t to_stride) {
  for (long i = 0; i < rows; i += W)
    for (long j = 0; j < columns; j += W) {
      vec v[W];
      for (int u = 0; u < W; u++) v[u] = load(from + (i + u) * from_stride + j);
      transpose(v);
      for (int u = 0; u < W; u++) store(to + (j + u) * to_stride + i, v[u]);
    }
}

/* Lanes of keys that the query i of a block sees in the block's own keys. */
static inline ivec seen(int i) {
#if W == 16
  return (ivec){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} <= i;
#else
  return (ivec){0, 1, 2, 3, 4, 5, 6, 7} <= i;
#endif
}

static void forward(const Job *job, Head *h, long batch, int head) {
  const long n = h->n, stride = h->stride;
  const float infinity = INFINITY;
  for (long t = 0; t < n; t += R) {
    const long keys = t + R;
    product(h->q + t * h->e, h->e, 1, h->kt, stride, job->e, h->s, stride, 0, R, keys);
    float inverse[R];
    for (int i = 0; i < R; i++) {
      float *s = h->s + i * stride;
      const ivec mask = seen(i);
      vec last = load(s + t), top, total = {0};
      last = (vec)(((ivec)last & mask) | ((ivec)all(-infinity) & ~mask));
      store(s + t, last);
      top = last;
      for (long j = 0; j < t; j += W) top = larger(load(s + j), top);
      float most = top[0];
      for (int l = 1; l < W; l++) most = top[l] > most ? top[l] : most;
      for (long j = 0; j < t; j += W) {
        const vec p = exponential(load(s + j) - most);
        total += p;
        store(s + j, p);
      }
      last = (vec)((ivec)exponential(last - most) & mask);
      store(s + t, last);
      total += last;
      float sum = 0;
      for (int l = 0; l < W; l++) sum += total[l];
      inverse[i] = 1 / sum;
      if (job->lse && t + i < job->n) job->lse[(batch * job->heads + head) * job->n + t + i] = most + logf(sum);
    }
    product(h->s, stride, 1, h->v, h->e, keys, h->row, h->e, 0, R, h->e);
    for (int i = 0; i < R && t + i < job->n; i++) {
      float *o = job->o + ((batch * job->n + t + i) * job->heads + head) * job->e;
      for (int c = 0; c < job->e; c++) o[c] = h->row[i * h->e + c] * inverse[i];
    }
  }
}

static void write_gradient(const Job *job, const float *row, float scale, float *to, long batch, long t, int head, int turn) {
  float *at = to + ((batch * job->n + t) * job->heads + head) * job->e;
  for (int c = 0; c < job->e; c++) at[c] = scale * row[c];
  if (turn && job->cosine) rotate(at, job, t, 1);
}

static void backward(const Job *job, Head *h, long batch, int head, float scale) {
  const long n = h->n, stride = h->stride;
  const int width = h->e, channels = (job->e + ROWS - 1) / ROWS * ROWS;
  const float *lse = job->lse + (batch * job->heads + head) * job->n;
  memset(h->dkt, 0, sizeof(float) * stride * width);
  memset(h->dvt, 0, sizeof(float) * stride * width);
  for (long t = 0; t < n; t += R) {
    const long keys = t + R;
    product(h->q + t * width, width, 1, h->kt, stride, job->e, h->s, stride, 0, R, keys);
    product(h->g + t * width, width, 1, h->vt, stride, job->e, h->ds, stride, 0, R, keys);
    for (int i = 0; i < R; i++) {
      float *s = h->s + i * stride, *ds = h->ds + i * stride;
      const float shift = t + i < job->n ? lse[t + i] : 0, mean = h->mean[t + i];
      const ivec mask = seen(i);
      for (long j = 0; j < t; j += W) {
        const vec p = exponential(load(s + j) - shift);
        store(s + j, p);
        store(ds + j, p * (load(ds + j) - mean));
      }
      const vec p = (vec)((ivec)exponential(load(s + t) - shift) & mask);
      store(s + t, p);
      store(ds + t, p * (vec)((ivec)(load(ds + t) - mean) & mask));
    }
    product(h->q + t * width, 1, width, h->ds, stride, R, h->dkt, stride, 1, channels, keys);
    product(h->g + t * width, 1, width, h->s, stride, R, h->dvt, stride, 1, channels, keys);
    product(h->ds, stride, 1, h->k, width, keys, h->row, width, 0, R, width);
    for (int i = 0; i < R && t + i < job->n; i++)
      write_gradient(job, h->row + i * width, scale, job->dq, batch, t + i, head, 1);
  }
  transpose_all(h->dkt, stride, width, n, h->k, width); /* the rows of keys and values are no longer needed */
  transpose_all(h->dvt, stride, width, n, h->v, width);
  for (long t = 0; t < job->n; t++) {
    write_gradient(job, h->k + t * width, 1, job->dk, batch, t, head, 1);
    write_gradient(job, h->v + t * width, 1, job->dv, batch, t, head, 0);
  }
}

/* The mean of a row's gradients, weighted by its probabilities: dO O'. */
static void means(const Job *job, Head *h, long batch, int head) {
  for (long t = 0; t < job->n; t++) {
    const float *o = job->o + ((batch * job->n + t) * job->heads + head) * job->e, *g = h->g + t * h->e;
    float sum = 0;
    for (int c = 0; c < job->e; c++) sum += o[c] * g[c];
    h->mean[t] = sum;
  }
}

static int attend(const void *argument, int thread, long first, long last) {
  const Job *job = argument;
  const long n = (job->n + R - 1) / R * R, stride = n + 2 * W;
  const int e = (job->e + W - 1) / W * W;
  const size_t size = (size_t)stride * e, bytes = (sizeof(float) * (8 * size + 2 * R * stride + R * e + n) + 63) / 64 * 64;
  const float scale = 1 / sqrtf((float)job->e);
  (void)thread;
  float *scratch = aligned_alloc(64, bytes);
  if (!scratch) return 1;
  memset(scratch, 0, bytes);
  Head h = {.n = n, .stride = stride, .e = e, .q = scratch, .v = scratch + size, .kt = scratch + 2 * size, .k = scratch + 3 * size};
  h.g = h.k + size, h.vt = h.g + size, h.dkt = h.vt + size, h.dvt = h.dkt + size;
  h.s = h.dvt + size, h.ds = h.s + R * stride, h.row = h.ds + R * stride, h.mean = h.row + R * e;
  for (long item = first; item < last; item++) {
    const long batch = item / job->heads;
    const int head = (int)(item % job->heads);
    if (job->n < n) /* the gradients of the item before fill the padding of keys and values */
      memset(h.k + job->n * e, 0, sizeof(float) * (n - job->n) * e), memset(h.v + job->n * e, 0, sizeof(float) * (n - job->n) * e);
    read_rows(job, job->q, batch, head, h.q, e, scale, 1);
    read_rows(job, job->k, batch, head, h.k, e, 1, 1);
    read_rows(job, job->v, batch, head, h.v, e, 1, 0);
    transpose_all(h.k, e, n, e, h.kt, stride);
    if (!job->dq) {
      forward(job, &h, batch, head);
      continue;
    }
    read_rows(job, job->g, batch, head, h.g, e, 1, 0);
    transpose_all(h.v, e, n, e, h.vt, stride);
    means(job, &h, batch, head);
    backward(job, &h, batch, head, scale);
  }
  free(scratch);
  return 0;
}

/* Strides are those of batch, token and head, in numbers, for q, k, v (and g). */
int lmu_causal(const float *q, const float *k, const float *v, const long *strides, const float *cosine, const float *sine,
               float *o, float *lse, long batch, long n, int heads, int e, int threads) {
  Job job = {.cosine = cosine, .sine = sine, .o = o, .lse = lse, .n = n, .heads = heads, .e = e};
  job.q = (Input){q, strides[0], strides[1], strides[2]}, job.k = (Input){k, strides[3], strides[4], strides[5]};
  job.v = (Input){v, strides[6], strides[7], strides[8]};
  return lmu_share(attend, &job, batch * heads, threads);
}

int lmu_causal_back(const float *q, const float *k, const float *v, const float *g, const long *strides, const float *cosine,
                    const float *sine, const float *o, const float *lse, float *dq, float *dk, float *dv, long batch, long n,
                    int heads, int e, int threads) {
  Job job = {.cosine = cosine, .sine = sine, .o = (float *)o, .lse = (float *)lse, .n = n, .heads = heads, .e = e};
  job.q = (Input){q, strides[0], strides[1], strides[2]}, job.k = (Input){k, strides[3], strides[4], strides[5]};
  job.v = (Input){v, strides[6], strides[7], strides[8]}, job.g = (Input){g, strides[9], strides[10], strides[11]};
  job.dq = dq, job.dk = dk, job.dv = dv;
  return lmu_share(attend, &job, batch * heads, threads);
}
