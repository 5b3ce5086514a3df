/* out += a b for a batch of matrices b and one a: the steps of generation, whose matrices are too small for a BLAS.

   Layout: a [rows][depth]; b [batch][depth][columns]; out [batch][rows][columns]. */

#include "vector.h"

#define ROWS (W / 2) /* of a block: its sums fill three quarters of the registers */

typedef struct {
  const float *a, *b;
  float *out;
  long rows, depth, columns, blocks;
} Job;

/* `rows` x W `vectors` entries, the last vector with `left` columns. */
static inline __attribute__((always_inline)) void block(const Job *job, const float *a, const float *b, float *out, int left,
                                                        const int rows, const int vectors) {
  vec sum[ROWS][3];
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++)
    sum[i][j] = load_some(out + i * job->columns + W * j, j + 1 < vectors ? W : left);
  for (long k = 0; k < job->depth; k++, b += job->columns) {
    vec v[3];
    UNROLL for (int j = 0; j < vectors; j++) v[j] = load_some(b + W * j, j + 1 < vectors ? W : left);
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] += a[i * job->depth + k] * v[j];
  }
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++)
    store_some(out + i * job->columns + W * j, sum[i][j], j + 1 < vectors ? W : left);
}

/* Blocks of rows of all matrices. */
static int multiply(const void *argument, int thread, long first, long last) {
  const Job *job = argument;
  (void)thread;
  for (long item = first; item < last; item++) {
    const long i = item % job->blocks * ROWS, batch = item / job->blocks, end = i + ROWS < job->rows ? i + ROWS : job->rows;
    for (long j = 0; j < job->columns; j += 3 * W) {
      const long columns = job->columns - j < 3 * W ? job->columns - j : 3 * W, vectors = (columns + W - 1) / W;
      const float *b = job->b + batch * job->depth * job->columns + j;
      float *out = job->out + batch * job->rows * job->columns + j;
      const int left = (int)(columns - (vectors - 1) * W);
      for (long row = i; row < end;) {
        const float *a = job->a + row * job->depth;
        float *to = out + row * job->columns;
        const int whole = end - row == ROWS;
        if (whole && vectors == 3) block(job, a, b, to, left, ROWS, 3);
        else if (whole && vectors == 2) block(job, a, b, to, left, ROWS, 2);
        else if (whole) block(job, a, b, to, left, ROWS, 1);
        else if (vectors == 3) block(job, a, b, to, left, 1, 3);
        else if (vectors == 2) block(job, a, b, to, left, 1, 2);
        else block(job, a, b, to, left, 1, 1);
        row += whole ? ROWS : 1;
      }
    }
  }
  return 0;
}

int lmu_add_product(const float *a, const float *b, float *out, long batch, long rows, long depth, long columns, int threads) {
  Job job = {a, b, out, rows, depth, columns, (rows + ROWS - 1) / ROWS};
  return lmu_share(multiply, &job, batch * job.blocks, threads);
}
