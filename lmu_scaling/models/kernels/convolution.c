/* Causal convolution of every channel with every filter by FFT (paper, eq. 7; appendix A.1), and its gradient.

   Sixteen channels go through one complex transform: eight lanes, two channels each as real and imaginary part. That
   is exact because the filters are real. Spectra stay in the order in which decimation in frequency leaves them; the
   inverse transform undoes it, so nothing is ever reordered. `size` is a power of two, at least 2n and at least 2 TILE,
   so the upper half of every input is zero, and only the lower half of every output is wanted.

   Layout: x, dx [batch][n][d]; y, dy [batch][tile][d][k][TILE]; spectra [k][size][re, im], divided by size. */

#include "vector.h"
#include <math.h>

#define CHANNELS (2 * W)

typedef struct { vec re, im; } cvec;

static inline cvec add(cvec a, cvec b) { return (cvec){a.re + b.re, a.im + b.im}; }
static inline cvec sub(cvec a, cvec b) { return (cvec){a.re - b.re, a.im - b.im}; }
static inline cvec turn(cvec a) { return (cvec){-a.im, a.re}; } /* times i */
static inline cvec times(cvec a, const float *w) {
  return (cvec){a.re * w[0] - a.im * w[1], a.re * w[1] + a.im * w[0]};
}
static inline cvec times_conj(cvec a, const float *w) {
  return (cvec){a.re * w[0] + a.im * w[1], a.im * w[0] - a.re * w[1]};
}

/* For each stage of radix 4, from the largest: w^j, w^2j, w^3j for j < stage / 4. Fills 2 * size floats at most. */
void lmu_twiddles(float *table, long size) {
  for (long stage = size; stage >= 4; stage /= 4)
    for (long j = 0; j < stage / 4; j++)
      for (int power = 1; power <= 3; power++) {
        double angle = -2.0 * 3.14159265358979323846 * (double)(power * j) / (double)stage;
        *table++ = (float)cos(angle);
        *table++ = (float)sin(angle);
      }
}

static inline long twiddles_of(long stage) { return stage / 4 * 6; }

/* One butterfly of four, decimation in frequency; w has the three twiddles of this place. */
static inline void spread(cvec a, cvec b, cvec c, cvec e, const float *w, cvec out[4]) {
  cvec ac = add(a, c), a_c = sub(a, c), be = add(b, e), ib_e = turn(sub(b, e));
  out[0] = add(ac, be);
  out[1] = times(sub(a_c, ib_e), w);
  out[2] = times(sub(ac, be), w + 2);
  out[3] = times(add(a_c, ib_e), w + 4);
}

/* Its inverse, times four. */
static inline void gather(cvec a, cvec b, cvec c, cvec e, const float *w, cvec out[4]) {
  b = times_conj(b, w), c = times_conj(c, w + 2), e = times_conj(e, w + 4);
  cvec ac = add(a, c), a_c = sub(a, c), be = add(b, e), ib_e = turn(sub(b, e));
  out[0] = add(ac, be);
  out[1] = add(a_c, ib_e);
  out[2] = sub(ac, be);
  out[3] = sub(a_c, ib_e);
}

/* The last two stages of a transform whose size is an odd power of two, in registers. */
static void transform_8(cvec *x, const float *w) {
  cvec even[4], odd[4];
  spread(x[0], x[2], x[4], x[6], w, even);
  spread(x[1], x[3], x[5], x[7], w + 6, odd);
  for (int part = 0; part < 4; part++) {
    x[2 * part] = add(even[part], odd[part]);
    x[2 * part + 1] = sub(even[part], odd[part]);
  }
}
static void inverse_8(cvec *x, const float *w) {
  for (int part = 0; part < 8; part += 2) { /* in place: sixteen registers would not do */
    cvec a = x[part], b = x[part + 1];
    x[part] = add(a, b);
    x[part + 1] = sub(a, b);
  }
  for (int j = 0; j < 2; j++) {
    cvec out[4];
    gather(x[j], x[j + 2], x[j + 4], x[j + 6], w + 6 * j, out);
    for (int part = 0; part < 4; part++) x[j + 2 * part] = out[part];
  }
}

static void transform(cvec *x, long stage, const float *w) {
  if (stage == 8) {
    transform_8(x, w);
    return;
  }
  const long m = stage / 4;
  for (long j = 0; j < m; j++) {
    cvec out[4];
    spread(x[j], x[j + m], x[j + 2 * m], x[j + 3 * m], w + 6 * j, out);
    for (int part = 0; part < 4; part++) x[j + part * m] = out[part];
  }
  if (m > 1)
    for (int part = 0; part < 4; part++) transform(x + part * m, m, w + twiddles_of(stage));
}

/* The same when the upper half of x is zero (and not even read). */
static void transform_padded(cvec *x, long stage, const float *w) {
  const long m = stage / 4;
  for (long j = 0; j < m; j++) {
    cvec a = x[j], b = x[j + m], ib = turn(b);
    x[j] = add(a, b);
    x[j + m] = times(sub(a, ib), w + 6 * j);
    x[j + 2 * m] = times(sub(a, b), w + 6 * j + 2);
    x[j + 3 * m] = times(add(a, ib), w + 6 * j + 4);
  }
  for (int part = 0; part < 4; part++) transform(x + part * m, m, w + twiddles_of(stage));
}

/* Undoes `transform`, times `stage`. */
static void inverse(cvec *x, long stage, const float *w) {
  if (stage == 8) {
    inverse_8(x, w);
    return;
  }
  const long m = stage / 4;
  if (m > 1)
    for (int part = 0; part < 4; part++) inverse(x + part * m, m, w + twiddles_of(stage));
  for (long j = 0; j < m; j++) {
    cvec out[4];
    gather(x[j], x[j + m], x[j + 2 * m], x[j + 3 * m], w + 6 * j, out);
    for (int part = 0; part < 4; part++) x[j + part * m] = out[part];
  }
}

/* The same, when only the lower half is wanted. */
static void inverse_lower(cvec *x, long stage, const float *w) {
  const long m = stage / 4;
  for (int part = 0; part < 4; part++) inverse(x + part * m, m, w + twiddles_of(stage));
  for (long j = 0; j < m; j++) {
    cvec out[4];
    gather(x[j], x[j + m], x[j + 2 * m], x[j + 3 * m], w + 6 * j, out);
    x[j] = out[0];
    x[j + m] = out[1];
  }
}

/* Eight filters per transform; these few are moved one number at a time. */
int lmu_spectrum(const float *filters, float *spectra, const float *w, long n, long size, int k) {
  cvec *x = aligned_alloc(64, (size_t)size * sizeof(cvec));
  if (!x) return 1;
  for (int first = 0; first < k; first += W) {
    memset(x, 0, (size_t)size * sizeof(cvec));
    int count = k - first < W ? k - first : W;
    for (int l = 0; l < count; l++)
      for (long t = 0; t < n; t++) x[t].re[l] = filters[(ptrdiff_t)(first + l) * n + t];
    transform_padded(x, size, w);
    for (int l = 0; l < count; l++)
      for (long f = 0; f < size; f++) {
        float *to = spectra + 2 * ((ptrdiff_t)(first + l) * size + f);
        to[0] = x[f].re[l] / (float)size;
        to[1] = x[f].im[l] / (float)size;
      }
  }
  free(x);
  return 0;
}

/* d(filters) from the spectra that `lmu_correlate` summed, one set per thread. */
int lmu_filter_gradient(const float *sums, int threads, float *filters, const float *w, long n, long size, int k) {
  cvec *x = aligned_alloc(64, (size_t)size * sizeof(cvec));
  if (!x) return 1;
  for (int first = 0; first < k; first += W) {
    memset(x, 0, (size_t)size * sizeof(cvec));
    int count = k - first < W ? k - first : W;
    for (int thread = 0; thread < threads; thread++)
      for (int l = 0; l < count; l++) {
        const float *from = sums + 2 * ((ptrdiff_t)thread * k + first + l) * size;
        for (long f = 0; f < size; f++) {
          x[f].re[l] += from[2 * f];
          x[f].im[l] += from[2 * f + 1];
        }
      }
    inverse_lower(x, size, w);
    for (int l = 0; l < count; l++)
      for (long t = 0; t < n; t++) filters[(ptrdiff_t)(first + l) * n + t] = x[t].re[l] / (float)size;
  }
  free(x);
  return 0;
}

typedef struct {
  const float *x, *spectra, *w, *dy;
  float *y, *dx, *sums;
  long n, size, tiles;
  int d, k, groups;
} Job;

/* Channels first … first + 15 of one sequence, transformed. */
static void load_channels(cvec *z, const Job *job, const float *x, int first) {
  const int left = job->d - first;
  for (long t = 0; t < job->n; t++)
    z[t] = (cvec){load_some(x + t * job->d + first, left), load_some(x + t * job->d + first + W, left - W)};
  memset(z + job->n, 0, (size_t)(job->size / 2 - job->n) * sizeof(cvec));
  transform_padded(z, job->size, job->w);
}

/* Eight steps of eight channels of y: row c is channel c. The pointer is to the first of these channels. */
static inline void store_steps(float *y, vec v[W], int k, int left) {
  transpose(v);
  for (int c = 0; c < W && c < left; c++) store(y + (ptrdiff_t)c * k * TILE, v[c]);
}
static inline void load_steps(const float *y, vec v[W], int k, int left) {
  for (int c = 0; c < W; c++) v[c] = c < left ? load(y + (ptrdiff_t)c * k * TILE) : all(0);
  transpose(v);
}

static int convolve(const void *argument, int thread, long first_item, long last_item) {
  const Job *job = argument;
  const long size = job->size, per_tile = (long)job->d * job->k * TILE;
  cvec *z = aligned_alloc(64, 2 * (size_t)size * sizeof(cvec)), *product = z + size;
  (void)thread;
  if (!z) return 1;
  for (long item = first_item; item < last_item; item++) {
    const long b = item / job->groups;
    const int first = (int)(item % job->groups) * CHANNELS, left = job->d - first;
    load_channels(z, job, job->x + b * job->n * job->d, first);
    for (int i = 0; i < job->k; i++) {
      const float *h = job->spectra + 2 * (ptrdiff_t)i * size;
      for (long f = 0; f < size; f++) product[f] = times(z[f], h + 2 * f);
      inverse_lower(product, size, job->w);
      float *y = job->y + b * job->tiles * per_tile + ((ptrdiff_t)first * job->k + i) * TILE;
      for (long t = 0; t < job->tiles * TILE; t += W) {
        float *at = y + t / TILE * per_tile + t % TILE;
        vec v[W];
        for (int s = 0; s < W; s++) v[s] = product[t + s].re;
        store_steps(at, v, job->k, left);
        if (left <= W) continue;
        for (int s = 0; s < W; s++) v[s] = product[t + s].im;
        store_steps(at + (ptrdiff_t)W * job->k * TILE, v, job->k, left - W);
      }
    }
  }
  free(z);
  return 0;
}

/* back += conj(h) g, and the sums over lanes of conj(z) g are added to `sum`. */
static void accumulate(cvec *back, const cvec *z, const cvec *g, const float *h, float *sum, long size) {
  for (long f = 0; f < size; f += 4) {
    vec v[W];
    for (int s = 0; s < 4; s++) {
      const cvec a = z[f + s], b = g[f + s];
      back[f + s] = add(back[f + s], times_conj(b, h + 2 * (f + s)));
      v[2 * s] = a.re * b.re + a.im * b.im;
      v[2 * s + 1] = a.re * b.im - a.im * b.re;
    }
    store(sum + 2 * f, load(sum + 2 * f) + sums_of(v));
  }
}

static int correlate(const void *argument, int thread, long first_item, long last_item) {
  const Job *job = argument;
  const long size = job->size, per_tile = (long)job->d * job->k * TILE;
  cvec *z = aligned_alloc(64, 3 * (size_t)size * sizeof(cvec)), *g = z + size, *back = g + size;
  if (!z) return 1;
  float *sums = job->sums + 2 * (ptrdiff_t)thread * job->k * size;
  for (long item = first_item; item < last_item; item++) {
    const long b = item / job->groups;
    const int first = (int)(item % job->groups) * CHANNELS, left = job->d - first;
    load_channels(z, job, job->x + b * job->n * job->d, first);
    memset(back, 0, (size_t)size * sizeof(cvec));
    for (int i = 0; i < job->k; i++) {
      const float *dy = job->dy + b * job->tiles * per_tile + ((ptrdiff_t)first * job->k + i) * TILE;
      for (long t = 0; t < job->tiles * TILE; t += W) {
        const float *at = dy + t / TILE * per_tile + t % TILE;
        vec re[W], im[W];
        load_steps(at, re, job->k, left);
        load_steps(at + (ptrdiff_t)W * job->k * TILE, im, job->k, left - W);
        for (int s = 0; s < W; s++) g[t + s] = (cvec){re[s], im[s]};
      }
      memset(g + job->tiles * TILE, 0, (size_t)(size / 2 - job->tiles * TILE) * sizeof(cvec));
      transform_padded(g, size, job->w);
      accumulate(back, z, g, job->spectra + 2 * (ptrdiff_t)i * size, sums + 2 * (ptrdiff_t)i * size, size);
    }
    inverse_lower(back, size, job->w);
    float *dx = job->dx + b * job->n * job->d + first;
    for (long t = 0; t < job->n; t++) {
      store_some(dx + t * job->d, back[t].re, left);
      store_some(dx + t * job->d + W, back[t].im, left - W);
    }
  }
  free(z);
  return 0;
}

int lmu_convolve(const float *x, const float *spectra, const float *w, float *y, long batch, long n, long size, int d, int k,
                 int threads) {
  const int groups = (d + CHANNELS - 1) / CHANNELS;
  Job job = {.x = x, .spectra = spectra, .w = w, .y = y, .n = n, .size = size, .d = d, .k = k, .groups = groups};
  job.tiles = (n + TILE - 1) / TILE;
  return lmu_share(convolve, &job, batch * groups, threads);
}

/* sums [threads][k][size][2] must be zero. */
int lmu_correlate(const float *x, const float *spectra, const float *w, const float *dy, float *dx, float *sums, long batch,
                  long n, long size, int d, int k, int threads) {
  const int groups = (d + CHANNELS - 1) / CHANNELS;
  Job job = {.x = x, .spectra = spectra, .w = w, .dy = dy, .dx = dx, .sums = sums};
  job.n = n, job.size = size, job.d = d, job.k = k, job.groups = groups, job.tiles = (n + TILE - 1) / TILE;
  return lmu_share(correlate, &job, batch * groups, threads);
}
