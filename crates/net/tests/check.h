/* What the test programs have in common. */
#ifndef CHECK_H
#define CHECK_H

#include "pathloom_net.h"

#include <stdio.h>
#include <stdlib.h>

/* Ends the program if a fact is not so. */
#define CHECK(fact)                                                                                     \
    do {                                                                                                \
        if (!(fact)) {                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #fact, pathloom_net_error()); \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

/* Creates a network that must be right. */
static inline pathloom_net *network(const char *fabric, const char *transport) {
    struct pathloom_net_settings settings = {.abi = PATHLOOM_NET_ABI, .fabric = fabric, .transport = transport, .seed = 1};
    pathloom_net *net = NULL;
    CHECK(pathloom_net_new(&settings, &net) == PATHLOOM_NET_OK);
    return net;
}

#endif
