/* Equal shares of independent items for a few threads: the same thread count gives the same shares, hence equal bits.

   The threads are torch's own where its OpenMP is GCC's (its library is then loaded, and found by name): after each of
   torch's operations they wait in a busy loop, and further threads beside them would get half a core each. Elsewhere
   they are made for the occasion. */

#include "vector.h"

void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned) __attribute__((weak));
int omp_get_thread_num(void) __attribute__((weak));
int omp_get_num_threads(void) __attribute__((weak));

typedef struct {
  int (*work)(const void *, int, long, long);
  const void *job;
  int thread, failed;
  long first, last;
} Share;

typedef struct {
  Share *shares;
  int count;
} Team;

static void *run(void *argument) {
  Share *share = argument;
  share->failed = share->work(share->job, share->thread, share->first, share->last);
  return NULL;
}

/* Every member of the team; there may be fewer of them than shares. */
static void run_some(void *argument) {
  const Team *team = argument;
  for (int t = omp_get_thread_num(); t < team->count; t += omp_get_num_threads()) run(&team->shares[t]);
}

static void run_in_new_threads(Share *share, int threads) {
  pthread_t id[MOST_THREADS];
  int started[MOST_THREADS];
  for (int t = 0; t < threads; t++) started[t] = t + 1 < threads && !pthread_create(&id[t], NULL, run, &share[t]);
  for (int t = 0; t < threads; t++) /* this thread takes the last share, and those that could not be started */
    if (!started[t]) run(&share[t]);
  for (int t = 0; t < threads; t++)
    if (started[t]) pthread_join(id[t], NULL);
}

int lmu_share(int (*work)(const void *, int, long, long), const void *job, long items, int threads) {
  Share share[MOST_THREADS];
  int failed = 0;
  if (threads > MOST_THREADS) threads = MOST_THREADS;
  if (threads > items) threads = items < 1 ? 1 : (int)items;
  for (int t = 0; t < threads; t++) share[t] = (Share){work, job, t, 0, items * t / threads, items * (t + 1) / threads};
  Team team = {share, threads};
  if (threads == 1) run(share);
  else if (GOMP_parallel && omp_get_thread_num && omp_get_num_threads) GOMP_parallel(run_some, &team, (unsigned)threads, 0);
  else run_in_new_threads(share, threads);
  for (int t = 0; t < threads; t++) failed |= share[t].failed;
  return failed;
}
