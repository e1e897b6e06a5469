#include "PathloomNetwork.hh"

#include <cstdlib>
#include <iostream>
#include <stdexcept>

namespace pathloom {

namespace {

// An optional text of the settings.
const char* text(const std::string& value) {
    return value.empty() ? nullptr : value.c_str();
}

// ASTRA-sim looks at no result of a call, so an error that it cannot have foreseen ends the program.
void require(int result) {
    if (result != PATHLOOM_NET_OK) {
        std::cerr << "pathloom: " << pathloom_net_error() << std::endl;
        std::exit(1);
    }
}

std::uint64_t nanoseconds(const AstraSim::timespec_t& time) {
    switch (time.time_res) {
    case AstraSim::SE: return static_cast<std::uint64_t>(time.time_val * 1e9L);
    case AstraSim::MS: return static_cast<std::uint64_t>(time.time_val * 1e6L);
    case AstraSim::US: return static_cast<std::uint64_t>(time.time_val * 1e3L);
    case AstraSim::NS: return static_cast<std::uint64_t>(time.time_val);
    case AstraSim::FS: return static_cast<std::uint64_t>(time.time_val / 1e6L);
    }
    return 0;
}

}  // namespace

Network::Network(const NetworkConfiguration& configuration) {
    pathloom_net_settings settings{};
    settings.abi = PATHLOOM_NET_ABI;
    settings.fabric = configuration.fabric.c_str();
    settings.scheme = text(configuration.scheme);
    settings.transport = text(configuration.transport);
    settings.control = text(configuration.control);
    settings.faults = text(configuration.faults);
    settings.seed = configuration.seed;
    pathloom_net* net = nullptr;
    if (pathloom_net_new(&settings, &net) != PATHLOOM_NET_OK) {
        throw std::runtime_error(pathloom_net_error());
    }
    net_.reset(net);
}

std::uint32_t Network::ranks() const {
    return pathloom_net_ranks(net_.get());
}

std::uint64_t Network::now_ns() const {
    return pathloom_net_now_ns(net_.get());
}

pathloom_net_totals Network::count() const {
    pathloom_net_totals totals{};
    require(pathloom_net_count(net_.get(), &totals));
    return totals;
}

void Network::run() {
    if (pathloom_net_run(net_.get()) != PATHLOOM_NET_OK) {
        throw std::runtime_error(pathloom_net_error());
    }
}

RankInterface::RankInterface(int rank, Network& network) : AstraNetworkAPI(rank), network_(network) {}

int RankInterface::sim_send(void*, std::uint64_t count, int, int dst, int tag, AstraSim::sim_request*,
                            void (*msg_handler)(void*), void* fun_arg) {
    const auto own = static_cast<std::uint32_t>(sim_comm_get_rank());
    require(pathloom_net_send(network_.handle(), own, static_cast<std::uint32_t>(dst), count, tag, msg_handler, fun_arg));
    return 0;
}

int RankInterface::sim_recv(void*, std::uint64_t count, int, int src, int tag, AstraSim::sim_request*,
                            void (*msg_handler)(void*), void* fun_arg) {
    const auto own = static_cast<std::uint32_t>(sim_comm_get_rank());
    require(pathloom_net_recv(network_.handle(), static_cast<std::uint32_t>(src), own, count, tag, msg_handler, fun_arg));
    return 0;
}

void RankInterface::sim_schedule(AstraSim::timespec_t delta, void (*fun_ptr)(void*), void* fun_arg) {
    require(pathloom_net_schedule(network_.handle(), nanoseconds(delta), fun_ptr, fun_arg));
}

AstraSim::timespec_t RankInterface::sim_get_time() {
    return {AstraSim::NS, static_cast<long double>(network_.now_ns())};
}

double RankInterface::get_BW_at_dimension(int) {
    return static_cast<double>(pathloom_net_rate_bps(network_.handle(), static_cast<std::uint32_t>(rank))) / 8e9;
}

void RankInterface::sim_notify_finished() {
    finished_ = true;
    finished_ns_ = network_.now_ns();
}

}  // namespace pathloom
