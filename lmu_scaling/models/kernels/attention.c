/* Implicit self-attention (paper, eqs. 8-10), forward and backward, vectorised over time.

   For each token, with y [3r, d] the pre-activations of Q, K and V (r is the paper's q'):
     Q, K, V = gelu(y + bias);  A = softmax(scale Q K');  w = p A;  m = w V.

   Layout: y, dy [batch][tile][d][3r][TILE]; m, dm [batch][n][d]. Sums over tiles are taken in a fixed order. */

#include "vector.h"

/* gelu(x) = x Phi(x), and its derivative Phi(x) + x phi(x); erfc by Abramowitz and Stegun 7.1.26, error 1.5e-7. */
static inline vec gelu(vec x, vec *slope) {
  ivec sign = (ivec)x & INT32_MIN;
  vec z = (vec)((ivec)x ^ sign) * 0.707106781f;
  vec t = 1.0f / (1.0f + 0.3275911f * z);
  vec bell = exponential(-z * z);
  vec poly = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  vec half = 0.5f - 0.5f * poly * bell;
  vec phi = 0.5f + (vec)((ivec)half ^ sign);
  if (slope) *slope = phi + x * bell * 0.398942280f;
  return x * phi;
}

typedef struct {
  const float *y, *bias, *p, *dm;
  float *m, *dy, *sums; /* sums [threads][4r]: dbias, then dp */
  float scale;
  long n, tiles;
  int d, r;
} Job;

/* r is cut into blocks of at most MOST, whose sizes differ by one at most: sums of a block are kept in registers. */
#define MOST (W == 16 ? 5 : 3)

static inline int block_start(int r, int most, int block) {
  const int count = (r + most - 1) / most;
  return r * block / count;
}

/* S[i][j] = sum_c Q[c][i] K[c][j] for a block of S. */
static inline __attribute__((always_inline)) void score_block(const vec *Q, const vec *K, vec *S, int d, int r, const int rows,
                                                              const int columns) {
  vec a[MOST][MOST];
  UNROLL for (int u = 0; u < rows; u++) UNROLL for (int v = 0; v < columns; v++) a[u][v] = all(0);
  for (int c = 0; c < d; c++, Q += r, K += r)
    UNROLL for (int u = 0; u < rows; u++) UNROLL for (int v = 0; v < columns; v++) a[u][v] += Q[u] * K[v];
  UNROLL for (int u = 0; u < rows; u++) UNROLL for (int v = 0; v < columns; v++) S[u * r + v] = a[u][v];
}

static void scores(const vec *Q, const vec *K, vec *S, int d, int r) {
  const int count = (r + MOST - 1) / MOST;
  for (int block = 0; block < count * count; block++) {
    const int i = block_start(r, MOST, block / count), rows = block_start(r, MOST, block / count + 1) - i;
    const int j = block_start(r, MOST, block % count), columns = block_start(r, MOST, block % count + 1) - j;
    switch (rows * 8 + columns) {
#define CASE(rows, columns) \
  case rows * 8 + columns: score_block(Q + i, K + j, S + i * r + j, d, r, rows, columns); break;
      CASE(1, 1) CASE(1, 2) CASE(2, 1) CASE(2, 2) CASE(2, 3) CASE(3, 2) CASE(3, 3)
#if W == 16
      CASE(3, 4) CASE(4, 3) CASE(4, 4) CASE(4, 5) CASE(5, 4) CASE(5, 5)
#endif
#undef CASE
    }
  }
}

/* Rows of S become probabilities; w[j] = sum_i p[i] A[i][j]. */
static void softmax(vec *S, vec *w, const float *p, float scale, int r) {
  for (int j = 0; j < r; j++) w[j] = all(0);
  for (int i = 0; i < r; i++) {
    vec *s = S + i * r, top = s[0] * scale, total = {0};
    for (int j = 0; j < r; j++) {
      s[j] *= scale;
      top = larger(top, s[j]);
    }
    for (int j = 0; j < r; j++) {
      s[j] = exponential(s[j] - top);
      total += s[j];
    }
    vec inverse = 1.0f / total;
    for (int j = 0; j < r; j++) {
      s[j] *= inverse;
      w[j] += p[i] * s[j];
    }
  }
}

/* W steps of all channels between [n][d] and vectors over time; steps behind the sequence's end are zero. */
static void store_tokens(float *m, vec *channels, int d, long left) {
  for (int first = 0; first < d; first += W) {
    vec v[W];
    for (int c = 0; c < W; c++) v[c] = first + c < d ? channels[first + c] : all(0);
    transpose(v);
    for (int t = 0; t < W && t < left; t++) store_some(m + (ptrdiff_t)t * d + first, v[t], d - first);
  }
}
static void load_tokens(const float *m, vec *channels, int d, long left) {
  for (int first = 0; first < d; first += W) {
    vec v[W];
    for (int t = 0; t < W; t++) v[t] = t < left ? load_some(m + (ptrdiff_t)t * d + first, d - first) : all(0);
    transpose(v);
    for (int c = 0; c < W && first + c < d; c++) channels[first + c] = v[c];
  }
}

/* W tokens. y points at their first channel. */
static void forward(const Job *job, const float *y, float *m, long left, vec *scratch) {
  const int d = job->d, r = job->r;
  vec *Q = scratch, *K = Q + (ptrdiff_t)d * r, *S = K + (ptrdiff_t)d * r, *w = S + r * r, *out = w + r;
  for (int c = 0; c < d; c++)
    for (int i = 0; i < r; i++) {
      Q[c * r + i] = gelu(load(y + (c * 3 * r + i) * TILE) + job->bias[i], NULL);
      K[c * r + i] = gelu(load(y + (c * 3 * r + r + i) * TILE) + job->bias[r + i], NULL);
    }
  scores(Q, K, S, d, r);
  softmax(S, w, job->p, job->scale, r);
  for (int c = 0; c < d; c++) {
    vec a = {0};
    for (int j = 0; j < r; j++) a += w[j] * gelu(load(y + (c * 3 * r + 2 * r + j) * TILE) + job->bias[2 * r + j], NULL);
    out[c] = a;
  }
  store_tokens(m, out, d, left);
}

/* out[c][i] = slope[c][i] sum_j T[i][j] G[c][j] for a block; T is read with two strides. */
static inline __attribute__((always_inline)) void mix_block(const vec *T, int si, int sj, const vec *G, const vec *slope,
                                                            float *out, vec *sums, int r, const int channels, const int rows) {
  vec a[4][5];
  UNROLL for (int u = 0; u < channels; u++) UNROLL for (int v = 0; v < rows; v++) a[u][v] = all(0);
  for (int j = 0; j < r; j++)
    UNROLL for (int v = 0; v < rows; v++) UNROLL for (int u = 0; u < channels; u++) a[u][v] += T[v * si + j * sj] * G[u * r + j];
  UNROLL for (int v = 0; v < rows; v++) {
    UNROLL for (int u = 0; u < channels; u++) {
      a[u][v] *= slope[u * r + v];
      store(out + (u * 3 * r + v) * TILE, a[u][v]);
    }
    sums[v] += channels == 4 ? (a[0][v] + a[1][v]) + (a[2][v] + a[3][v]) : a[0][v];
  }
}

/* The same for all channels and rows (for dQ: T = dS; for dK: its transpose). */
static void mix(const vec *T, int si, int sj, const vec *G, const vec *slope, float *out, vec *sums, int d, int r) {
  const int most = W == 16 ? 5 : 2, count = (r + most - 1) / most;
  for (int c = 0; c < d;) {
    const int channels = c + 4 <= d ? 4 : 1;
    for (int block = 0; block < count; block++) {
      const int i = block_start(r, most, block), rows = block_start(r, most, block + 1) - i;
      switch (rows * 8 + channels) {
#define CASE(rows, channels)                                                                                          \
  case rows * 8 + channels:                                                                                           \
    mix_block(T + i * si, si, sj, G + c * r, slope + c * r + i, out + (c * 3 * r + i) * TILE, sums + i, r, channels, rows); \
    break;
        CASE(1, 1) CASE(2, 1) CASE(1, 4) CASE(2, 4)
#if W == 16
        CASE(3, 1) CASE(4, 1) CASE(5, 1) CASE(3, 4) CASE(4, 4) CASE(5, 4)
#endif
#undef CASE
      }
    }
    c += channels;
  }
}

static void backward(const Job *job, const float *y, const float *dm, float *dy, long left, vec *sums, vec *scratch) {
  const int d = job->d, r = job->r;
  const ptrdiff_t size = (ptrdiff_t)d * r;
  vec *Q = scratch, *K = Q + size, *slope_Q = K + size, *slope_K = slope_Q + size;
  vec *S = slope_K + size, *w = S + r * r, *dw = w + r, *g = dw + r;
  load_tokens(dm, g, d, left);
  for (int c = 0; c < d; c++)
    for (int i = 0; i < r; i++) {
      Q[c * r + i] = gelu(load(y + (c * 3 * r + i) * TILE) + job->bias[i], &slope_Q[c * r + i]);
      K[c * r + i] = gelu(load(y + (c * 3 * r + r + i) * TILE) + job->bias[r + i], &slope_K[c * r + i]);
    }
  scores(Q, K, S, d, r);
  softmax(S, w, job->p, job->scale, r);
  for (int j = 0; j < r; j++) dw[j] = all(0);
  for (int c = 0; c < d; c++)
    for (int j = 0; j < r; j++) {
      vec slope, V = gelu(load(y + (c * 3 * r + 2 * r + j) * TILE) + job->bias[2 * r + j], &slope);
      vec back = w[j] * g[c] * slope;
      dw[j] += V * g[c];
      sums[2 * r + j] += back;
      store(dy + (c * 3 * r + 2 * r + j) * TILE, back);
    }
  for (int i = 0; i < r; i++) { /* dS = scale p_i A (dw - A dw), in place */
    vec *a = S + i * r, mean = {0};
    for (int j = 0; j < r; j++) mean += a[j] * dw[j];
    sums[3 * r + i] += mean;
    for (int j = 0; j < r; j++) a[j] *= (job->p[i] * job->scale) * (dw[j] - mean);
  }
  mix(S, r, 1, K, slope_Q, dy, sums, d, r);
  mix(S, 1, r, Q, slope_K, dy + r * TILE, sums + r, d, r);
}

static int attend(const void *argument, int thread, long first, long last) {
  const Job *job = argument;
  const int d = job->d, r = job->r;
  const size_t vectors = (size_t)4 * d * r + (size_t)r * r + 2 * (size_t)r + d, all_sums = 4 * (size_t)r;
  vec *scratch = aligned_alloc(64, ((vectors + all_sums) * sizeof(vec) + 63) / 64 * 64), *sums = scratch + vectors;
  if (!scratch) return 1;
  memset(sums, 0, all_sums * sizeof(vec));
  for (long tile = first; tile < last; tile++)
    for (int lane = 0; lane < TILE; lane += W) {
      const long t = tile % job->tiles * TILE + lane, left = job->n - t;
      const ptrdiff_t at = (tile / job->tiles * job->n + t) * d, at_y = (ptrdiff_t)tile * d * 3 * r * TILE + lane;
      if (job->m)
        forward(job, job->y + at_y, job->m + at, left, scratch);
      else
        backward(job, job->y + at_y, job->dm + at, job->dy + at_y, left, sums, scratch);
    }
  if (!job->m)
    for (size_t i = 0; i < all_sums; i++) {
      float total = 0;
      for (int l = 0; l < W; l++) total += sums[i][l];
      job->sums[thread * all_sums + i] = total;
    }
  free(scratch);
  return 0;
}

int lmu_tile(void) { return TILE; }

int lmu_attend(const float *y, const float *bias, const float *p, float scale, float *m, long batch, long n, int d, int r,
               int threads) {
  Job job = {.y = y, .bias = bias, .p = p, .m = m, .scale = scale, .n = n, .tiles = (n + TILE - 1) / TILE, .d = d, .r = r};
  return lmu_share(attend, &job, batch * job.tiles, threads);
}

/* sums [threads][4r] must be zero; the caller adds its rows up. dy may be y itself. */
int lmu_attend_back(const float *y, const float *bias, const float *p, float scale, const float *dm, float *dy, float *sums,
                    long batch, long n, int d, int r, int threads) {
  Job job = {.y = y, .bias = bias, .p = p, .dm = dm, .dy = dy, .sums = sums, .scale = scale, .n = n, .d = d, .r = r};
  job.tiles = (n + TILE - 1) / TILE;
  return lmu_share(attend, &job, batch * job.tiles, threads);
}
