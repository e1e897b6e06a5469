/* The packet-level simulator of Pathloom as a network for other simulators.
 *
 * A program creates a network from text, as on the command line of Pathloom. It sends and receives messages between the
 * ranks, which are the hosts of the fabric in the fabric's order. It schedules events of its own in the same simulated
 * time. pathloom_net_run() then lets time pass and calls back: when a message has arrived, and when an event is due.
 *
 *   struct pathloom_net_settings settings = {.abi = PATHLOOM_NET_ABI, .fabric = "fat-tree:k=4,rate=10Gbps", .seed = 1};
 *   pathloom_net *net;
 *   if (pathloom_net_new(&settings, &net) != PATHLOOM_NET_OK) { puts(pathloom_net_error()); exit(1); }
 *   pathloom_net_send(net, 0, 5, 1000000, 7, NULL, NULL);
 *   pathloom_net_recv(net, 0, 5, 1000000, 7, arrived, context);
 *   pathloom_net_run(net);
 *   pathloom_net_free(net);
 *
 * Callbacks are called only by the two functions that run, one after the other, never by the others. A callback may call
 * every function except pathloom_net_run(), pathloom_net_run_until() and pathloom_net_free() of its own network. It must
 * not leave by longjmp or by a C++ exception.
 *
 * Networks are independent. One thread at a time may use a network. The same calls with the same seed give the same times.
 */
#ifndef PATHLOOM_NET_H
#define PATHLOOM_NET_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. It changes with every change that an old program would not survive. */
#define PATHLOOM_NET_ABI 1u

/* What functions return. */
enum pathloom_net_result {
    PATHLOOM_NET_OK = 0,
    /* A wrong argument: text that cannot be read, a rank that does not exist, a null pointer, another version. */
    PATHLOOM_NET_BAD_ARGUMENT = 1,
    /* A callback has called a function that runs or frees its own network. */
    PATHLOOM_NET_BUSY = 2,
    /* Nothing is left to happen, but receives wait for messages that nobody has sent. */
    PATHLOOM_NET_STALLED = 3,
    /* The simulated clock has ended with messages or events left. */
    PATHLOOM_NET_OVER = 4,
    /* An error of the library itself. The network can only be freed. */
    PATHLOOM_NET_FAILED = 5
};

/* A network with its hosts. */
typedef struct pathloom_net pathloom_net;

/* What a program passes to be called back. `context` is the pointer that it gave. */
typedef void (*pathloom_net_callback)(void *context);

/* Everything that determines a network. Initialise it with 0. Texts are UTF-8, and are copied. */
struct pathloom_net_settings {
    uint32_t abi;          /* PATHLOOM_NET_ABI */
    const char *fabric;    /* as --fabric: a specification or the path of a file */
    const char *scheme;    /* as --scheme; NULL is ecmp */
    const char *transport; /* as --transport; NULL is the transport of the scheme's hosts */
    const char *control;   /* as --control; NULL is the default */
    const char *faults;    /* faults separated by ',', each as --fault; NULL is none */
    uint64_t seed;         /* of everything that is drawn, such as source ports */
    uint64_t end_ns;       /* end of the simulated clock; 0 is 200 days, the latest end */
};

/* Counts so far. */
struct pathloom_net_totals {
    uint64_t messages; /* sent by the program */
    uint64_t packets;  /* sent by hosts and switches, acknowledgements included */
    uint64_t dropped;  /* packets lost */
    uint64_t hops;     /* links that packets have crossed */
    uint64_t events;   /* of the simulator */
};

/* PATHLOOM_NET_ABI of the library. */
uint32_t pathloom_net_abi(void);

/* Creates a network and stores it at `net`. */
int pathloom_net_new(const struct pathloom_net_settings *settings, pathloom_net **net);

/* Frees a network, or does nothing if it is NULL. Callbacks that are still due are never called. */
int pathloom_net_free(pathloom_net *net);

/* Number of ranks; 0 if `net` is NULL. */
uint32_t pathloom_net_ranks(const pathloom_net *net);

/* Rate of the cards of a rank in bit/s, headers included, all cards together; 0 if there is no such rank. */
uint64_t pathloom_net_rate_bps(const pathloom_net *net, uint32_t rank);

/* Simulated time in ns, rounded down; 0 if `net` is NULL. */
uint64_t pathloom_net_now_ns(const pathloom_net *net);

/* Messages under way, scheduled events, and callbacks that are due; 0 if `net` is NULL. */
uint64_t pathloom_net_pending(const pathloom_net *net);

/* Sends a message now. `sent` is called when its last byte has arrived; NULL is nobody. A message of 0 bytes takes a packet
 * with one byte. A message of a rank to itself arrives at once. */
int pathloom_net_send(pathloom_net *net, uint32_t src, uint32_t dst, uint64_t bytes, int64_t tag,
                      pathloom_net_callback sent, void *context);

/* Receives a message: the first send, then the second, and so on, with the same ranks, bytes and tag. `received` is called
 * when its last byte has arrived, after `sent` of the message; NULL is nobody. It does not matter which of send and receive
 * comes first. */
int pathloom_net_recv(pathloom_net *net, uint32_t src, uint32_t dst, uint64_t bytes, int64_t tag,
                      pathloom_net_callback received, void *context);

/* Calls `due` after this time. Events for the same time are called in the order in which they were scheduled, after the
 * callbacks of messages that have arrived by then. */
int pathloom_net_schedule(pathloom_net *net, uint64_t delay_ns, pathloom_net_callback due, void *context);

/* Runs until all messages have arrived and no event is scheduled. */
int pathloom_net_run(pathloom_net *net);

/* Runs up to and including this time. Later calls go on from there. */
int pathloom_net_run_until(pathloom_net *net, uint64_t until_ns);

/* Stores counts at `totals`. */
int pathloom_net_count(const pathloom_net *net, struct pathloom_net_totals *totals);

/* One line that says what was wrong with the last call of this thread that returned something other than PATHLOOM_NET_OK,
 * and what was expected. It is valid until the next such call. */
const char *pathloom_net_error(void);

#ifdef __cplusplus
}
#endif

#endif
