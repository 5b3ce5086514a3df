/* Eight floats at a time, in GCC's and Clang's vector extensions, their exponential, and work shared among threads. */

#ifndef LMU_VECTOR_H
#define LMU_VECTOR_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define W 8     /* lanes */
#define TILE 16 /* steps of time in a tile of pre-activations */
#define MOST_THREADS 64

typedef float vec __attribute__((vector_size(4 * W)));
typedef int32_t ivec __attribute__((vector_size(4 * W)));

#ifdef __clang__
#define MERGE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MERGE(a, b, ...) __builtin_shuffle(a, b, (ivec){__VA_ARGS__})
#endif

static inline vec load(const float *from) { vec v; memcpy(&v, from, sizeof v); return v; }
static inline void store(float *to, vec v) { memcpy(to, &v, sizeof v); }
static inline vec all(float a) { return (vec){0} + a; }

/* The first `count` lanes, where a row of channels ends. */
static inline vec load_some(const float *from, int count) {
  if (count >= W) return load(from);
  vec v = {0};
  if (count > 0) memcpy(&v, from, 4 * (size_t)count);
  return v;
}
static inline void store_some(float *to, vec v, int count) {
  if (count > 0) memcpy(to, &v, 4 * (size_t)(count < W ? count : W));
}

/* Rows to columns, by swapping ever larger blocks. */
static inline void transpose(vec v[W]) {
  for (int i = 0; i < W; i += 2) {
    vec a = v[i], b = v[i + 1];
    v[i] = MERGE(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
    v[i + 1] = MERGE(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < W; i += (i & 1) ? 3 : 1) {
    vec a = v[i], b = v[i + 2];
    v[i] = MERGE(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
    v[i + 2] = MERGE(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int i = 0; i < 4; i++) {
    vec a = v[i], b = v[i + 4];
    v[i] = MERGE(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
    v[i + 4] = MERGE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

/* Lane i of the result is the sum over the lanes of v[i]. */
static inline vec sums_of(const vec v[W]) {
  vec a[4], b[2];
  for (int i = 0; i < 4; i++)
    a[i] = MERGE(v[i], v[i + 4], 0, 1, 2, 3, 8, 9, 10, 11) + MERGE(v[i], v[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  for (int i = 0; i < 2; i++)
    b[i] = MERGE(a[i], a[i + 2], 0, 1, 8, 9, 4, 5, 12, 13) + MERGE(a[i], a[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  return MERGE(b[0], b[1], 0, 8, 2, 10, 4, 12, 6, 14) + MERGE(b[0], b[1], 1, 9, 3, 11, 5, 13, 7, 15);
}

/* b where they cannot be compared. */
static inline vec larger(vec a, vec b) {
  ivec m = a > b;
  return (vec)(((ivec)a & m) | ((ivec)b & ~m));
}

/* e^x for x below 88: 2^i 2^f with a polynomial of degree 6, relative error 2e-7; below -87 it stays at e^-87. */
static inline vec exponential(vec x) {
  const float magic = 12582912.0f; /* adding 1.5 * 2^23 rounds to the nearest whole number */
  x = larger(all(-87.0f), x); /* in this order NaN stays NaN */
  vec shifted = x * 1.44269504f + magic;
  vec whole = shifted - magic;
  vec f = x - whole * 0.693359375f + whole * 2.12194440e-4f; /* ln 2 in two parts */
  vec e = 0.00833345205f + f * 0.00139430652f;
  e = 1.0f + f * (1.0f + f * (0.5f + f * (0.166666667f + f * (0.0416666418f + f * e))));
  ivec exponent = ((ivec)shifted - (ivec)all(magic) + 127) << 23;
  return e * (vec)exponent;
}

/* Runs work(job, thread, first, last) on equal shares of the items. Returns 0, or 1 when memory ran out. */
int lmu_share(int (*work)(const void *, int, long, long), const void *job, long items, int threads);

#endif
