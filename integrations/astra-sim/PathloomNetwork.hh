// A network back end of ASTRA-sim whose messages are packets of Pathloom's simulator (pathloom_net.h).
#pragma once

#include "astra-sim/common/AstraNetworkAPI.hh"

#include <cstdint>
#include <memory>
#include <string>

#include "pathloom_net.h"

namespace pathloom {

// What the file of --network-configuration says. Texts are as on the command line of Pathloom.
struct NetworkConfiguration {
    std::string fabric;
    std::string scheme = "ecmp";
    // Empty: the transport of the scheme's hosts.
    std::string transport;
    std::string control;
    std::string faults;
    std::uint64_t seed = 1;
};

// One simulated network, which the interfaces of all ranks share.
class Network {
  public:
    // Throws std::runtime_error with Pathloom's message if the configuration is wrong.
    explicit Network(const NetworkConfiguration& configuration);

    std::uint32_t ranks() const;
    std::uint64_t now_ns() const;
    // Counts so far.
    pathloom_net_totals count() const;
    // Runs until nothing is left to happen. Throws std::runtime_error if ranks wait for messages that never come.
    void run();

    pathloom_net* handle() const { return net_.get(); }

  private:
    struct Free {
        void operator()(pathloom_net* net) const { pathloom_net_free(net); }
    };
    std::unique_ptr<pathloom_net, Free> net_;
};

// The interface of one rank.
class RankInterface final : public AstraSim::AstraNetworkAPI {
  public:
    // `network` must outlive the interface.
    RankInterface(int rank, Network& network);

    int sim_send(void* buffer, std::uint64_t count, int type, int dst, int tag, AstraSim::sim_request* request,
                 void (*msg_handler)(void*), void* fun_arg) override;
    int sim_recv(void* buffer, std::uint64_t count, int type, int src, int tag, AstraSim::sim_request* request,
                 void (*msg_handler)(void*), void* fun_arg) override;
    void sim_schedule(AstraSim::timespec_t delta, void (*fun_ptr)(void*), void* fun_arg) override;
    AstraSim::timespec_t sim_get_time() override;
    // Rate of the cards of this rank in GB/s, whatever the dimension.
    double get_BW_at_dimension(int dim) override;
    void sim_notify_finished() override;

    // Whether the workload of this rank has finished, and when.
    bool finished() const { return finished_; }
    std::uint64_t finished_ns() const { return finished_ns_; }

  private:
    Network& network_;
    bool finished_ = false;
    std::uint64_t finished_ns_ = 0;
};

}  // namespace pathloom
