/* The recurrence of an LSTM layer over whole sequences, forward and backward.

   Gates are input, forget, cell and output, as in torch. What a step takes from its input (W x + b) comes in, computed
   for all steps at once by a large product; here is what each step takes from the one before: U h, the gates, the cell.
   The weights U are packed so that each is read once, in order, for up to GROUP sequences.

   Sequences are independent, and each one's sums have the same order however many share a read: the result depends
   neither on the number of threads nor on the batch. */

#include <math.h>

#include "vector.h"

#define GATES 4
#define GROUP (W == 16 ? 4 : 2) /* sequences at a time: their sums for W channels and four gates fill the registers */

typedef struct {
  const float *recurrent; /* U [4][d][d]: gate, to, from */
  float *gates;           /* [batch][n][4][d]. Forward: W x + b in, gates out. Backward: gates in, their gradients out */
  float *cell, *hidden;   /* [batch][n][d]; hidden is not used backward */
  const float *gradient;  /* of hidden, or NULL: forward */
  float *packed;          /* forward [d / W][from][4][W], backward [d / W][4][to][W] */
  long n;
  int d;
} Job;

static inline vec sigmoid(vec x) { return 1 / (1 + exponential(-larger(all(-87.0f), x))); }

/* Hyperbolic tangent. Near zero by an odd polynomial (relative error 1e-7), where the difference would lose digits. */
static inline vec tangent(vec x) {
  const vec square = x * x, far = 2 * sigmoid(2 * x) - 1;
  vec p = -5.37397155531e-2f + square * (2.06390887954e-2f + square * -5.70498872745e-3f);
  p = x + x * square * (-3.33332819422e-1f + square * (1.33314422036e-1f + square * p));
  const ivec near = square < 0.390625f;
  return (vec)(((ivec)p & near) | ((ivec)far & ~near)); /* NaN compares as far */
}

/* Channel blocks of W, zero beyond d. */
static void pack(const Job *job) {
  const int d = job->d;
  float *to = job->packed;
  for (int c = 0; c < d; c += W)
    for (int a = 0; a < (job->gradient ? GATES : d); a++)
      for (int b = 0; b < (job->gradient ? d : GATES); b++, to += W)
        for (int l = 0; l < W; l++) {
          const long gate = job->gradient ? a : b, row = job->gradient ? b : c + l, column = job->gradient ? c + l : a;
          to[l] = c + l < d ? job->recurrent[(gate * d + row) * d + column] : 0;
        }
}

/* One step of `count` sequences. */
static inline __attribute__((always_inline)) void forward(const Job *job, long first, long t, const int count) {
  const int d = job->d;
  const float *u = job->packed;
  for (int c = 0; c < d; c += W) {
    const int lanes = d - c;
    vec sum[GROUP][GATES];
    UNROLL for (int s = 0; s < count; s++)
      UNROLL for (int g = 0; g < GATES; g++)
        sum[s][g] = load_some(job->gates + (((first + s) * job->n + t) * GATES + g) * d + c, lanes);
    if (t > 0) {
      const float *h = job->hidden + (first * job->n + t - 1) * d;
      for (int k = 0; k < d; k++, u += GATES * W) {
        vec v[GATES];
        UNROLL for (int g = 0; g < GATES; g++) v[g] = load(u + g * W);
        UNROLL for (int s = 0; s < count; s++)
          UNROLL for (int g = 0; g < GATES; g++) sum[s][g] += h[s * job->n * d + k] * v[g];
      }
    }
    UNROLL for (int s = 0; s < count; s++) {
      const long at = (first + s) * job->n + t;
      float *gates = job->gates + at * GATES * d + c, *cell = job->cell + at * d + c;
      const vec i = sigmoid(sum[s][0]), f = sigmoid(sum[s][1]), g = tangent(sum[s][2]), o = sigmoid(sum[s][3]);
      const vec kept = t > 0 ? load_some(cell - d, lanes) : all(0), now = f * kept + i * g;
      store_some(gates, i, lanes), store_some(gates + d, f, lanes);
      store_some(gates + 2 * d, g, lanes), store_some(gates + 3 * d, o, lanes);
      store_some(cell, now, lanes);
      store_some(job->hidden + at * d + c, o * tangent(now), lanes);
    }
  }
}

/* dh: gradients of hidden from the step after, then of the step before; dc: of the cell. Both [count][d, padded]. */
static inline __attribute__((always_inline)) void backward(const Job *job, float *dh, float *dc, long first, long t,
                                                           const int count) {
  const int d = job->d, width = (d + W - 1) / W * W;
  for (int s = 0; s < count; s++) {
    const long at = (first + s) * job->n + t;
    for (int c = 0; c < d; c += W) {
      const int lanes = d - c;
      float *gates = job->gates + at * GATES * d + c, *cell = job->cell + at * d + c;
      const vec i = load_some(gates, lanes), f = load_some(gates + d, lanes);
      const vec g = load_some(gates + 2 * d, lanes), o = load_some(gates + 3 * d, lanes);
      const vec kept = t > 0 ? load_some(cell - d, lanes) : all(0), y = tangent(load_some(cell, lanes));
      const vec out = load_some(job->gradient + at * d + c, lanes) + load(dh + s * width + c);
      const vec into = load(dc + s * width + c) + out * o * (1 - y * y);
      store_some(gates, into * g * i * (1 - i), lanes);
      store_some(gates + d, into * kept * f * (1 - f), lanes);
      store_some(gates + 2 * d, into * i * (1 - g * g), lanes);
      store_some(gates + 3 * d, out * y * o * (1 - o), lanes);
      store(dc + s * width + c, into * f);
    }
  }
  const float *u = job->packed, *gates = job->gates + (first * job->n + t) * GATES * d;
  for (int c = 0; c < d; c += W) {
    vec sum[GROUP][GATES]; /* one for each gate: their additions do not wait for each other */
    UNROLL for (int s = 0; s < count; s++)
      UNROLL for (int g = 0; g < GATES; g++) sum[s][g] = all(0);
    for (int k = 0; k < d; k++)
      UNROLL for (int g = 0; g < GATES; g++) {
        const vec v = load(u + (g * d + k) * W);
        UNROLL for (int s = 0; s < count; s++) sum[s][g] += gates[s * job->n * GATES * d + g * d + k] * v;
      }
    u += GATES * d * W;
    UNROLL for (int s = 0; s < count; s++) store(dh + s * width + c, (sum[s][0] + sum[s][1]) + (sum[s][2] + sum[s][3]));
  }
}

static inline __attribute__((always_inline)) void group(const Job *job, float *scratch, long first, const int count) {
  const int width = (job->d + W - 1) / W * W;
  if (!job->gradient) {
    for (long t = 0; t < job->n; t++) forward(job, first, t, count);
    return;
  }
  memset(scratch, 0, sizeof(float) * 2 * GROUP * width);
  for (long t = job->n - 1; t >= 0; t--) backward(job, scratch, scratch + GROUP * width, first, t, count);
}

static int run(const void *argument, int thread, long first, long last) {
  const Job *job = argument;
  (void)thread;
  float *scratch = aligned_alloc(64, sizeof(float) * 2 * GROUP * ((job->d + W - 1) / W * W));
  if (!scratch) return 1;
  for (; first + GROUP <= last; first += GROUP) group(job, scratch, first, GROUP);
  for (; first + 2 <= last; first += 2) group(job, scratch, first, 2);
  for (; first < last; first++) group(job, scratch, first, 1);
  free(scratch);
  return 0;
}

static int over_sequences(Job *job, long batch, int threads) {
  const int width = (job->d + W - 1) / W * W;
  job->packed = aligned_alloc(64, sizeof(float) * GATES * job->d * width);
  if (!job->packed) return 1;
  pack(job);
  const int failed = lmu_share(run, job, batch, threads);
  free(job->packed);
  return failed;
}

int lmu_lstm(const float *recurrent, float *gates, float *cell, float *hidden, long batch, long n, int d, int threads) {
  Job job = {.recurrent = recurrent, .gates = gates, .cell = cell, .hidden = hidden, .n = n, .d = d};
  return over_sequences(&job, batch, threads);
}

int lmu_lstm_back(const float *recurrent, float *gates, const float *cell, const float *gradient, long batch, long n, int d,
                  int threads) {
  Job job = {.recurrent = recurrent, .gates = gates, .cell = (float *)cell, .gradient = gradient, .n = n, .d = d};
  return over_sequences(&job, batch, threads);
}
