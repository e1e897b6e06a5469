/* A ring all-reduce, as ASTRA-sim runs one: each rank sends a part of its buffer to the next rank, and sends the next part
 * when its own message has been sent and that of the rank before has arrived. Compares its time with the closed form.
 *
 * ring TRANSPORT PAYLOAD HEADER ANSWERS RANKS NETWORKS: runs so many networks in turn, a microsecond at a time, and prints the
 * time of each in ns. A full frame of the transport has PAYLOAD and HEADER bytes; for each frame its receiver sends ANSWERS bytes,
 * as a mean.
 */
#include "check.h"

#include <math.h>

enum { MOST_RANKS = 16, MOST_NETWORKS = 4 };

static const uint64_t BUFFER_BYTES = 16000000;

struct ring {
    pathloom_net *net;
    int ranks;
    uint64_t part_bytes;
    int done;
    uint64_t end_ns;
    struct rank {
        struct ring *ring;
        int number, step, waits_for;
    } rank[MOST_RANKS];
};

static void message_done(void *context);

static void next_step(struct rank *rank) {
    struct ring *ring = rank->ring;
    uint32_t own = (uint32_t)rank->number, count = (uint32_t)ring->ranks;
    rank->waits_for = 2;
    CHECK(pathloom_net_recv(ring->net, (own + count - 1) % count, own, ring->part_bytes, rank->step, message_done, rank) == 0);
    CHECK(pathloom_net_send(ring->net, own, (own + 1) % count, ring->part_bytes, rank->step, message_done, rank) == 0);
}

static void message_done(void *context) {
    struct rank *rank = context;
    struct ring *ring = rank->ring;
    if (--rank->waits_for > 0) return;
    if (++rank->step < 2 * (ring->ranks - 1)) {
        next_step(rank);
    } else {
        ring->done++;
        ring->end_ns = pathloom_net_now_ns(ring->net);
    }
}

static void start(struct ring *ring, const char *transport, int ranks) {
    char fabric[200];
    snprintf(fabric, sizeof fabric, "leaf-spine:spines=1,leaves=1,hosts=%d,rate=100Gbps,delay=1us,buffer=2000", ranks);
    *ring = (struct ring){.net = network(fabric, transport), .ranks = ranks, .part_bytes = BUFFER_BYTES / (uint64_t)ranks};
    CHECK(pathloom_net_ranks(ring->net) == (uint32_t)ranks);
    for (int number = 0; number < ranks; number++) {
        ring->rank[number] = (struct rank){.ring = ring, .number = number};
        next_step(&ring->rank[number]);
    }
}

/* The alpha-beta model: steps with the delay of two cables and of the switch, and bytes with headers, which share their links
 * with the answers of receivers. */
static double closed_form_ns(const struct ring *ring, double payload, double header, double answers) {
    double steps = 2.0 * (ring->ranks - 1), ns_per_byte = 8.0 / 100.0, bytes = (double)ring->part_bytes;
    double frames = ceil(bytes / payload);
    return steps * (2000.0 + (payload + header) * ns_per_byte + (bytes + frames * (header + answers)) * ns_per_byte);
}

int main(int count, char **argument) {
    CHECK(count == 7);
    double payload = atof(argument[2]), header = atof(argument[3]), answers = atof(argument[4]);
    int ranks = atoi(argument[5]), networks = atoi(argument[6]);
    CHECK(ranks >= 2 && ranks <= MOST_RANKS && networks >= 1 && networks <= MOST_NETWORKS);
    static struct ring ring[MOST_NETWORKS];
    for (int one = 0; one < networks; one++) start(&ring[one], argument[1], ranks);
    for (int left = networks; left > 0;) {
        left = 0;
        for (int one = 0; one < networks; one++) {
            CHECK(pathloom_net_run_until(ring[one].net, pathloom_net_now_ns(ring[one].net) + 1000) == 0);
            left += pathloom_net_pending(ring[one].net) > 0;
        }
    }
    for (int one = 0; one < networks; one++) {
        double off = (double)ring[one].end_ns / closed_form_ns(&ring[one], payload, header, answers) - 1.0;
        struct pathloom_net_totals totals;
        CHECK(ring[one].done == ranks);
        CHECK(pathloom_net_count(ring[one].net, &totals) == 0);
        CHECK(totals.dropped == 0 && totals.messages == (uint64_t)(2 * (ranks - 1) * ranks));
        if (fabs(off) > 0.01) fprintf(stderr, "%.3f %% off the closed form\n", 100.0 * off);
        CHECK(fabs(off) <= 0.01);
        printf("%llu\n", (unsigned long long)ring[one].end_ns);
        CHECK(pathloom_net_free(ring[one].net) == 0);
    }
    return 0;
}
