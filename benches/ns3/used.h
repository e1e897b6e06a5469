// Processor time and memory of a process, which all programs here print.

#ifndef PATHLOOM_USED_H
#define PATHLOOM_USED_H

#include <ctime>
#include <sys/resource.h>

inline double
CpuSeconds()
{
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

inline double
PeakMegabytes()
{
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024 / 1e6;
}

#endif
