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

/* S[i][j] = sum_d Q[d][i] K[d][j], in blocks that fit the registers. */
static void scores(const vec *Q, const vec *K, vec *S, int d, int r) {
  int i = 0;
  for (; i + 3 <= r; i += 3) {
    int j = 0;
    for (; j + 3 <= r; j += 3) {
      vec a[3][3];
      memset(a, 0, sizeof a);
      for (int c = 0; c < d; c++) {
        const vec *q = Q + (ptrdiff_t)c * r + i, *k = K + (ptrdiff_t)c * r + j;
        for (int u = 0; u < 3; u++)
          for (int v = 0; v < 3; v++) a[u][v] += q[u] * k[v];
      }
      for (int u = 0; u < 3; u++)
        for (int v = 0; v < 3; v++) S[(i + u) * r + j + v] = a[u][v];
    }
    for (; j < r; j++) {
      vec a[3];
      memset(a, 0, sizeof a);
      for (int c = 0; c < d; c++)
        for (int u = 0; u < 3; u++) a[u] += Q[(ptrdiff_t)c * r + i + u] * K[(ptrdiff_t)c * r + j];
      for (int u = 0; u < 3; u++) S[(i + u) * r + j] = a[u];
    }
  }
  for (; i < r; i++)
    for (int j = 0; j < r; j++) {
      vec a = {0};
      for (int c = 0; c < d; c++) a += Q[(ptrdiff_t)c * r + i] * K[(ptrdiff_t)c * r + j];
      S[i * r + j] = a;
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

/* Eight steps of all channels between [n][d] and vectors over time; steps behind the sequence's end are zero. */
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

/* Eight tokens. y points at their first channel. */
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

/* out[c][i] = slope[c][i] sum_j T[i][j] G[c][j], T read with strides (for dQ: dS; for dK: its transpose). */
static void mix(const vec *T, int si, int sj, const vec *G, const vec *slope, float *out, vec *sums, int d, int r) {
  int c = 0;
  for (; c + 4 <= d; c += 4)
    for (int i = 0; i < r; i++) {
      vec a[4];
      memset(a, 0, sizeof a);
      for (int j = 0; j < r; j++) {
        vec t = T[i * si + j * sj];
        for (int u = 0; u < 4; u++) a[u] += t * G[(c + u) * r + j];
      }
      for (int u = 0; u < 4; u++) {
        a[u] *= slope[(c + u) * r + i];
        store(out + ((c + u) * 3 * r + i) * TILE, a[u]);
      }
      sums[i] += (a[0] + a[1]) + (a[2] + a[3]);
    }
  for (; c < d; c++)
    for (int i = 0; i < r; i++) {
      vec a = {0};
      for (int j = 0; j < r; j++) a += T[i * si + j * sj] * G[c * r + j];
      a *= slope[c * r + i];
      sums[i] += a;
      store(out + (c * 3 * r + i) * TILE, a);
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
