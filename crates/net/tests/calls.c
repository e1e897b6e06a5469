/* Every call of the interface, with right and wrong arguments: order, matching, calls within callbacks, errors. */
#include "check.h"

#include <string.h>

static const char *STAR = "leaf-spine:spines=1,leaves=1,hosts=4,rate=10Gbps,delay=1us,buffer=500";

/* A log of letters, in the order of the callbacks. */
static char order[64];

static void note(void *context) {
    size_t length = strlen(order);
    CHECK(length + 1 < sizeof order);
    order[length] = *(const char *)context;
    order[length + 1] = 0;
}

static void forget(void) { order[0] = 0; }

static void sends_and_receives_match_in_either_order(void) {
    pathloom_net *net = network(STAR, "newreno:jitter=0s");
    forget();
    /* The receive comes first; the send that belongs to it has its tag and its size. */
    CHECK(pathloom_net_recv(net, 0, 1, 1000, 7, note, "r") == 0);
    CHECK(pathloom_net_send(net, 0, 1, 1000, 7, note, "s") == 0);
    CHECK(pathloom_net_pending(net) == 1);
    CHECK(pathloom_net_run(net) == 0);
    CHECK(strcmp(order, "sr") == 0);
    uint64_t first_ns = pathloom_net_now_ns(net);
    /* 1000 + 66 bytes on two cables of 10 Gbit/s and 1 us. */
    CHECK(first_ns >= 2000 + 2 * 852 && first_ns <= 2000 + 2 * 854);
    /* The message has arrived before it is received. */
    forget();
    CHECK(pathloom_net_send(net, 2, 3, 5000, -1, note, "s") == 0);
    CHECK(pathloom_net_run(net) == 0);
    CHECK(strcmp(order, "s") == 0);
    uint64_t second_ns = pathloom_net_now_ns(net);
    CHECK(second_ns > first_ns);
    CHECK(pathloom_net_recv(net, 2, 3, 5000, -1, note, "r") == 0);
    CHECK(strcmp(order, "s") == 0); /* not within the call */
    CHECK(pathloom_net_run(net) == 0);
    CHECK(strcmp(order, "sr") == 0 && pathloom_net_now_ns(net) == second_ns);
    /* Of equal messages the first receive gets the first, although both are under way. */
    forget();
    CHECK(pathloom_net_send(net, 0, 1, 9000, 5, note, "1") == 0);
    CHECK(pathloom_net_send(net, 0, 1, 9000, 5, note, "2") == 0);
    CHECK(pathloom_net_recv(net, 0, 1, 9000, 5, note, "a") == 0);
    CHECK(pathloom_net_recv(net, 0, 1, 9000, 5, note, "b") == 0);
    CHECK(pathloom_net_run(net) == 0);
    CHECK(strcmp(order, "1a2b") == 0);
    /* Nobody needs to be called; a message of no bytes arrives; one to oneself takes no time. */
    forget();
    CHECK(pathloom_net_send(net, 0, 2, 0, 0, NULL, NULL) == 0);
    CHECK(pathloom_net_recv(net, 0, 2, 0, 0, note, "z") == 0);
    CHECK(pathloom_net_run(net) == 0);
    uint64_t third_ns = pathloom_net_now_ns(net);
    CHECK(pathloom_net_recv(net, 3, 3, 64, 0, note, "o") == 0);
    CHECK(pathloom_net_send(net, 3, 3, 64, 0, NULL, NULL) == 0);
    CHECK(pathloom_net_run(net) == 0);
    CHECK(strcmp(order, "zo") == 0 && pathloom_net_now_ns(net) == third_ns && third_ns > second_ns);
    CHECK(pathloom_net_free(net) == 0);
}

struct chain {
    pathloom_net *net;
    int left;
    uint64_t at_ns[4];
};

/* Uses the network within a callback: each event schedules the next one, sends and receives, and must not run. */
static void next_link(void *context) {
    struct chain *chain = context;
    chain->at_ns[--chain->left] = pathloom_net_now_ns(chain->net);
    CHECK(pathloom_net_run(chain->net) == PATHLOOM_NET_BUSY);
    CHECK(pathloom_net_run_until(chain->net, 5) == PATHLOOM_NET_BUSY);
    CHECK(strstr(pathloom_net_error(), "pathloom_net_run_until was called by a callback") != NULL);
    CHECK(pathloom_net_free(chain->net) == PATHLOOM_NET_BUSY);
    CHECK(pathloom_net_send(chain->net, 0, 1, 100, chain->left, note, "s") == 0);
    CHECK(pathloom_net_recv(chain->net, 0, 1, 100, chain->left, note, "r") == 0);
    if (chain->left > 0) CHECK(pathloom_net_schedule(chain->net, 100000, next_link, chain) == 0);
}

static void callbacks_may_use_the_network(void) {
    struct chain chain = {.net = network(STAR, "dctcp"), .left = 4};
    forget();
    CHECK(pathloom_net_schedule(chain.net, 250, next_link, &chain) == 0);
    CHECK(pathloom_net_run(chain.net) == 0);
    CHECK(chain.left == 0 && strcmp(order, "srsrsrsr") == 0);
    for (int link = 0; link < 4; link++) CHECK(chain.at_ns[3 - link] == 250 + 100000 * (uint64_t)link);
    CHECK(pathloom_net_free(chain.net) == 0);
}

static void events_come_in_order_and_time_stops_where_it_is_told(void) {
    pathloom_net *net = network(STAR, NULL);
    forget();
    CHECK(pathloom_net_schedule(net, 20, note, "c") == 0);
    CHECK(pathloom_net_schedule(net, 10, note, "a") == 0);
    CHECK(pathloom_net_schedule(net, 20, note, "d") == 0);
    CHECK(pathloom_net_schedule(net, 10, note, "b") == 0);
    CHECK(pathloom_net_schedule(net, 0, note, "0") == 0);
    CHECK(order[0] == 0 && pathloom_net_pending(net) == 5);
    CHECK(pathloom_net_run_until(net, 19) == 0);
    CHECK(strcmp(order, "0ab") == 0 && pathloom_net_now_ns(net) == 19 && pathloom_net_pending(net) == 2);
    CHECK(pathloom_net_run_until(net, 5) == 0);
    CHECK(pathloom_net_now_ns(net) == 19);
    CHECK(pathloom_net_run(net) == 0);
    CHECK(strcmp(order, "0abcd") == 0 && pathloom_net_now_ns(net) == 20 && pathloom_net_pending(net) == 0);
    CHECK(pathloom_net_run_until(net, 1000) == 0);
    CHECK(pathloom_net_now_ns(net) == 1000);
    CHECK(pathloom_net_free(net) == 0);
}

/* Creates a network that must be wrong, and looks for words in the message. */
static void refused(struct pathloom_net_settings settings, const char *words) {
    pathloom_net *net = NULL;
    CHECK(pathloom_net_new(&settings, &net) == PATHLOOM_NET_BAD_ARGUMENT && net == NULL);
    if (strstr(pathloom_net_error(), words) == NULL) {
        fprintf(stderr, "expected `%s` in: %s\n", words, pathloom_net_error());
        exit(1);
    }
}

static void wrong_arguments_are_refused_with_a_message(void) {
    const uint32_t abi = PATHLOOM_NET_ABI;
    CHECK(pathloom_net_abi() == abi);
    refused((struct pathloom_net_settings){.abi = abi + 1, .fabric = STAR}, "abi is 2, and this library has 1");
    refused((struct pathloom_net_settings){.abi = abi}, "fabric of the settings is a null pointer");
    refused((struct pathloom_net_settings){.abi = abi, .fabric = "fat-tre:k=4"}, "fat-tree");
    refused((struct pathloom_net_settings){.abi = abi, .fabric = "no_such_file.json"}, "no_such_file.json");
    refused((struct pathloom_net_settings){.abi = abi, .fabric = "\xff"}, "fabric: is not UTF-8 text");
    refused((struct pathloom_net_settings){.abi = abi, .fabric = STAR, .scheme = "ecm"}, "ecmp");
    refused((struct pathloom_net_settings){.abi = abi, .fabric = STAR, .transport = "dctpc"}, "dctcp");
    refused((struct pathloom_net_settings){.abi = abi, .fabric = STAR, .control = "delay=1"}, "delay");
    refused((struct pathloom_net_settings){.abi = abi, .fabric = STAR, .faults = "nothing"}, "fault");
    refused((struct pathloom_net_settings){.abi = abi, .fabric = STAR, .scheme = "mptcp-aware", .transport = "uec"},
            "--transport with scheme mptcp-aware");
    CHECK(pathloom_net_new(NULL, NULL) == PATHLOOM_NET_BAD_ARGUMENT);
    pathloom_net *net = network(STAR, NULL);
    CHECK(pathloom_net_ranks(net) == 4 && pathloom_net_rate_bps(net, 3) == 10000000000u);
    CHECK(pathloom_net_rate_bps(net, 4) == 0);
    CHECK(pathloom_net_send(net, 0, 4, 1, 0, NULL, NULL) == PATHLOOM_NET_BAD_ARGUMENT);
    CHECK(strstr(pathloom_net_error(), "dst is rank 4; expected a rank below 4") != NULL);
    CHECK(pathloom_net_recv(net, 9, 0, 1, 0, NULL, NULL) == PATHLOOM_NET_BAD_ARGUMENT);
    CHECK(strstr(pathloom_net_error(), "src is rank 9") != NULL);
    CHECK(pathloom_net_count(net, NULL) == PATHLOOM_NET_BAD_ARGUMENT);
    CHECK(pathloom_net_pending(net) == 0 && pathloom_net_run(net) == 0);
    CHECK(pathloom_net_free(net) == 0);
    CHECK(pathloom_net_run(NULL) == PATHLOOM_NET_BAD_ARGUMENT && pathloom_net_free(NULL) == 0);
    CHECK(pathloom_net_ranks(NULL) == 0 && pathloom_net_now_ns(NULL) == 0 && pathloom_net_pending(NULL) == 0);
}

static void a_receive_that_waits_in_vain_is_named(void) {
    pathloom_net *net = network(STAR, NULL);
    forget();
    CHECK(pathloom_net_recv(net, 1, 2, 1000, 7, note, "r") == 0);
    CHECK(pathloom_net_send(net, 1, 2, 1000, 8, note, "s") == 0);
    CHECK(pathloom_net_run(net) == PATHLOOM_NET_STALLED);
    CHECK(strcmp(order, "s") == 0);
    CHECK(strstr(pathloom_net_error(), "rank 2 from rank 1, 1000 bytes, tag 7") != NULL);
    CHECK(strstr(pathloom_net_error(), "with 1000 bytes and tag 8 was sent") != NULL);
    /* The network is not broken: the message may still come. */
    CHECK(pathloom_net_send(net, 1, 2, 1000, 7, NULL, NULL) == 0);
    CHECK(pathloom_net_run(net) == 0);
    CHECK(strcmp(order, "sr") == 0);
    CHECK(pathloom_net_free(net) == 0);
}

static void a_host_that_is_cut_off_ends_the_clock(void) {
    struct pathloom_net_settings settings = {.abi = PATHLOOM_NET_ABI, .fabric = STAR, .faults = "1us:down:h0-e0"};
    settings.end_ns = 9000000000u;
    pathloom_net *net = NULL;
    CHECK(pathloom_net_new(&settings, &net) == 0);
    CHECK(pathloom_net_send(net, 0, 1, 1000000, 0, NULL, NULL) == 0);
    CHECK(pathloom_net_send(net, 2, 3, 1000000, 0, NULL, NULL) == 0);
    CHECK(pathloom_net_run(net) == PATHLOOM_NET_OVER);
    CHECK(strstr(pathloom_net_error(), "ended at 9000000000 ns; 1 messages have not arrived") != NULL);
    CHECK(pathloom_net_free(net) == 0);
}

int main(void) {
    sends_and_receives_match_in_either_order();
    callbacks_may_use_the_network();
    events_come_in_order_and_time_stops_where_it_is_told();
    wrong_arguments_are_refused_with_a_message();
    a_receive_that_waits_in_vain_is_named();
    a_host_that_is_cut_off_ends_the_clock();
    return 0;
}
