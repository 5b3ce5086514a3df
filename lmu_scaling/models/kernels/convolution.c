/* Causal convolution of every channel with every filter by FFT (paper, eq. 7; appendix A.1), and its gradient.

   Two vectors of channels go through one complex transform, as real and imaginary parts. That is exact because the
   filters are real. A sequence whose channels fill an odd number of vectors shares a transform with the next one.
   Spectra stay in the order in which decimation in frequency leaves them; the inverse transform undoes it, so nothing is
   ever reordered. `size` is a power of two, at least 2n and at least 2 TILE, so the upper half of every input is zero,
   and only the lower half of every output is wanted.

   Layout: x, dx [batch][n][d]; y, dy [batch][tile][d][k][TILE]; spectra [k][size][re, im], divided by size. */

#include "vector.h"
#include <math.h>

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

/* The first stage when the upper half of x is zero (and not even read). */
static void spread_lower(cvec *x, long stage, const float *w) {
  const long m = stage / 4;
  for (long j = 0; j < m; j++) {
    cvec a = x[j], b = x[j + m], ib = turn(b);
    x[j] = add(a, b);
    x[j + m] = times(sub(a, ib), w + 6 * j);
    x[j + 2 * m] = times(sub(a, b), w + 6 * j + 2);
    x[j + 3 * m] = times(add(a, ib), w + 6 * j + 4);
  }
}

static void transform_padded(cvec *x, long stage, const float *w) {
  const long m = stage / 4;
  spread_lower(x, stage, w);
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

/* The last stage when only the lower half is wanted. */
static void gather_lower(cvec *x, long stage, const float *w) {
  const long m = stage / 4;
  for (long j = 0; j < m; j++) {
    cvec out[4];
    gather(x[j], x[j + m], x[j + 2 * m], x[j + 3 * m], w + 6 * j, out);
    x[j] = out[0];
    x[j + m] = out[1];
  }
}

static void inverse_lower(cvec *x, long stage, const float *w) {
  const long m = stage / 4;
  for (int part = 0; part < 4; part++) inverse(x + part * m, m, w + twiddles_of(stage));
  gather_lower(x, stage, w);
}

/* W filters per transform; these few are moved one number at a time. */
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
  float *rests; /* [threads][n][2 W]: what a thread adds to the dx of the pair of vectors that it shares with the one before */
  long *shared; /* [threads]: that pair, or -1 */
  long batch, n, size, tiles;
  int d, k;
} Job;

/* Work is shared out by pairs of vectors and their filters, so that a few pairs keep many threads busy. */
typedef struct {
  long pair;
  int first, last; /* filters */
} Run;

/* One vector of channels of one sequence, as offsets into x and y; `left` is the number of its channels, or more. */
typedef struct {
  ptrdiff_t x, y;
  int left;
} Vector;

static inline long vectors_of(const Job *job) { return job->batch * ((job->d + W - 1) / W); }

/* The vector `index` of all; behind the last one it is empty. */
static Vector vector_at(const Job *job, long index) {
  const long per_sequence = (job->d + W - 1) / W, b = index / per_sequence, first = index % per_sequence * W;
  if (b >= job->batch) return (Vector){0, 0, 0};
  return (Vector){b * job->n * job->d + first, (b * job->tiles * job->d + first) * job->k * TILE, (int)(job->d - first)};
}

static inline long pairs_of(const Job *job) { return (vectors_of(job) + 1) / 2; }

/* The filters from `unit` on that belong to one pair and lie before `last`. */
static Run run_at(const Job *job, long unit, long last) {
  const int first = (int)(unit % job->k);
  return (Run){unit / job->k, first, (int)(last - unit < job->k - first ? first + last - unit : job->k)};
}

/* Two vectors of channels, transformed. */
static void load_channels(cvec *z, const Job *job, Vector re, Vector im) {
  for (long t = 0; t < job->n; t++)
    z[t] = (cvec){load_some(job->x + re.x + t * job->d, re.left), load_some(job->x + im.x + t * job->d, im.left)};
  memset(z + job->n, 0, (size_t)(job->size / 2 - job->n) * sizeof(cvec));
  transform_padded(z, job->size, job->w);
}

/* W steps of filter i from step t on; behind the last tile there are none. */
static inline void store_steps(const Job *job, Vector at, int i, long t, vec v[W]) {
  float *y = job->y + at.y + t / TILE * job->d * job->k * TILE + i * TILE + t % TILE;
  transpose(v);
  for (int c = 0; c < W && c < at.left; c++) store(y + (ptrdiff_t)c * job->k * TILE, v[c]);
}
static inline void load_steps(const Job *job, Vector at, int i, long t, vec v[W]) {
  const float *dy = job->dy + at.y + t / TILE * job->d * job->k * TILE + i * TILE + t % TILE;
  const int left = t < job->tiles * TILE ? at.left : 0;
  for (int c = 0; c < W; c++) v[c] = c < left ? load(dy + (ptrdiff_t)c * job->k * TILE) : all(0);
  transpose(v);
}

/* A quarter of the spectrum at a time, which stays in the first-level cache. */
static int convolve(const void *argument, int thread, long unit, long last) {
  const Job *job = argument;
  const long size = job->size, m = size / 4;
  cvec *z = aligned_alloc(64, 2 * (size_t)size * sizeof(cvec)), *product = z + size;
  (void)thread;
  if (!z) return 1;
  for (Run run; unit < last; unit += run.last - run.first) {
    run = run_at(job, unit, last);
    const Vector re = vector_at(job, 2 * run.pair), im = vector_at(job, 2 * run.pair + 1);
    load_channels(z, job, re, im);
    for (int i = run.first; i < run.last; i++) {
      const float *h = job->spectra + 2 * (ptrdiff_t)i * size;
      for (long first = 0; first < size; first += m) {
        for (long f = first; f < first + m; f++) product[f] = times(z[f], h + 2 * f);
        inverse(product + first, m, job->w + twiddles_of(size));
      }
      gather_lower(product, size, job->w);
      for (long t = 0; t < job->tiles * TILE; t += W) {
        vec v[W];
        for (int s = 0; s < W; s++) v[s] = product[t + s].re;
        store_steps(job, re, i, t, v);
        if (!im.left) continue;
        for (int s = 0; s < W; s++) v[s] = product[t + s].im;
        store_steps(job, im, i, t, v);
      }
    }
  }
  free(z);
  return 0;
}

/* back += conj(h) g, and the sums over lanes of conj(z) g are added to `sum`. */
static void accumulate(cvec *back, const cvec *z, const cvec *g, const float *h, float *sum, long size) {
  for (long f = 0; f < size; f += W / 2) {
    vec v[W];
    for (int s = 0; s < W / 2; s++) {
      const cvec a = z[f + s], b = g[f + s];
      back[f + s] = add(back[f + s], times_conj(b, h + 2 * (f + s)));
      v[2 * s] = a.re * b.re + a.im * b.im;
      v[2 * s + 1] = a.re * b.im - a.im * b.re;
    }
    store(sum + 2 * f, load(sum + 2 * f) + sums_of(v));
  }
}

/* Adds W steps of a pair's dx to one of its vectors. */
static void add_some(float *to, const float *from, int left) {
  if (left > 0) store_some(to, load_some(to, left) + load(from), left);
}

static int correlate(const void *argument, int thread, long unit, long last) {
  const Job *job = argument;
  const long size = job->size, m = size / 4;
  cvec *z = aligned_alloc(64, 3 * (size_t)size * sizeof(cvec)), *g = z + size, *back = g + size;
  if (!z) return 1;
  float *sums = job->sums + 2 * (ptrdiff_t)thread * job->k * size;
  job->shared[thread] = -1;
  for (Run run; unit < last; unit += run.last - run.first) {
    run = run_at(job, unit, last);
    const Vector re = vector_at(job, 2 * run.pair), im = vector_at(job, 2 * run.pair + 1);
    load_channels(z, job, re, im);
    memset(back, 0, (size_t)size * sizeof(cvec));
    for (int i = run.first; i < run.last; i++) {
      const float *h = job->spectra + 2 * (ptrdiff_t)i * size;
      float *sum = sums + 2 * (ptrdiff_t)i * size;
      for (long t = 0; t < size / 2; t += W) {
        vec v[W], u[W];
        load_steps(job, re, i, t, v);
        load_steps(job, im, i, t, u);
        for (int s = 0; s < W; s++) g[t + s] = (cvec){v[s], u[s]};
      }
      spread_lower(g, size, job->w);
      for (long first = 0; first < size; first += m) {
        transform(g + first, m, job->w + twiddles_of(size));
        accumulate(back + first, z + first, g + first, h + 2 * first, sum + 2 * first, m);
      }
    }
    inverse_lower(back, size, job->w);
    if (run.first > 0) { /* the thread before writes this pair's dx */
      job->shared[thread] = run.pair;
      memcpy(job->rests + (ptrdiff_t)thread * job->n * 2 * W, back, (size_t)job->n * sizeof(cvec));
      continue;
    }
    for (long t = 0; t < job->n; t++) {
      store_some(job->dx + re.x + t * job->d, back[t].re, re.left);
      store_some(job->dx + im.x + t * job->d, back[t].im, im.left);
    }
  }
  free(z);
  return 0;
}

int lmu_lanes(void) { return W; }

int lmu_convolve(const float *x, const float *spectra, const float *w, float *y, long batch, long n, long size, int d, int k,
                 int threads) {
  Job job = {.x = x, .spectra = spectra, .w = w, .y = y, .batch = batch, .n = n, .size = size, .d = d, .k = k};
  job.tiles = (n + TILE - 1) / TILE;
  return lmu_share(convolve, &job, pairs_of(&job) * k, threads);
}

/* sums [threads][k][size][2] must be zero. */
int lmu_correlate(const float *x, const float *spectra, const float *w, const float *dy, float *dx, float *sums, long batch,
                  long n, long size, int d, int k, int threads) {
  Job job = {.x = x, .spectra = spectra, .w = w, .dy = dy, .dx = dx, .sums = sums, .batch = batch};
  job.n = n, job.size = size, job.d = d, job.k = k, job.tiles = (n + TILE - 1) / TILE;
  long shared[MOST_THREADS];
  for (int thread = 0; thread < MOST_THREADS; thread++) shared[thread] = -1;
  job.shared = shared;
  job.rests = aligned_alloc(64, (size_t)threads * n * sizeof(cvec));
  if (!job.rests) return 1;
  const int failed = lmu_share(correlate, &job, pairs_of(&job) * k, threads);
  for (int thread = 0; thread < threads && !failed; thread++) {
    if (shared[thread] < 0) continue;
    const Vector re = vector_at(&job, 2 * shared[thread]), im = vector_at(&job, 2 * shared[thread] + 1);
    const float *rest = job.rests + (ptrdiff_t)thread * n * 2 * W;
    for (long t = 0; t < n; t++, rest += 2 * W) {
      add_some(dx + re.x + t * d, rest, re.left);
      add_some(dx + im.x + t * d, rest + W, im.left);
    }
  }
  free(job.rests);
  return failed;
}
