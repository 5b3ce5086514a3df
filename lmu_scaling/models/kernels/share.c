/* Equal shares of independent items for a few threads: the same thread count gives the same shares, hence equal bits. */

#include "vector.h"

typedef struct {
  int (*work)(const void *, int, long, long);
  const void *job;
  int thread, failed;
  long first, last;
} Share;

static void *run(void *argument) {
  Share *share = argument;
  share->failed = share->work(share->job, share->thread, share->first, share->last);
  return NULL;
}

int lmu_share(int (*work)(const void *, int, long, long), const void *job, long items, int threads) {
  pthread_t id[MOST_THREADS];
  Share share[MOST_THREADS];
  int started[MOST_THREADS], failed = 0;
  if (threads > MOST_THREADS) threads = MOST_THREADS;
  if (threads > items) threads = items < 1 ? 1 : (int)items;
  for (int t = 0; t < threads; t++) {
    share[t] = (Share){work, job, t, 0, items * t / threads, items * (t + 1) / threads};
    started[t] = t + 1 < threads && !pthread_create(&id[t], NULL, run, &share[t]);
  }
  for (int t = 0; t < threads; t++) /* this thread takes the last share, and those that could not be started */
    if (!started[t]) run(&share[t]);
  for (int t = 0; t < threads; t++) {
    if (started[t]) pthread_join(id[t], NULL);
    failed |= share[t].failed;
  }
  return failed;
}
