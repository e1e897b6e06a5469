// ASTRA-sim over Pathloom's packets. Takes the options of ASTRA-sim's other back ends; README.md has the keys of the file
// of --network-configuration.
#include "PathloomNetwork.hh"

#include "astra-sim/common/Logging.hh"
#include "astra-sim/system/Sys.hh"

#include <cxxopts/cxxopts.hpp>
#include <fstream>
#include <iostream>
#include <json/json.hpp>
#include <remote_memory_backend/analytical/AnalyticalRemoteMemory.hh>
#include <stdexcept>
#include <vector>

namespace {

using Json = nlohmann::json;

struct Configuration {
    pathloom::NetworkConfiguration network;
    // Ranks in each dimension of the logical topology.
    std::vector<int> dimensions;
};

cxxopts::ParseResult parse(int count, char* argument[]) {
    cxxopts::Options options(argument[0], "ASTRA-sim over the packets of Pathloom");
    const auto text = [&options](const char* name, const char* help, const char* usual) {
        auto value = cxxopts::value<std::string>();
        options.add_options()(name, help, usual == nullptr ? value : value->default_value(usual));
    };
    text("workload-configuration", "Workload: the path of its traces without `.RANK.et`", nullptr);
    text("system-configuration", "System layer: a JSON file", nullptr);
    text("remote-memory-configuration", "Remote memory: a JSON file", nullptr);
    text("network-configuration", "Network: a JSON file", nullptr);
    text("comm-group-configuration", "Communicator groups: a JSON file", "empty");
    text("logging-configuration", "Logging: a TOML file", "empty");
    text("logging-folder", "Folder of the logs", "log");
    options.add_options()("num-queues-per-dim", "Queues of each dimension", cxxopts::value<int>()->default_value("1"));
    options.add_options()("comm-scale", "Factor of message sizes", cxxopts::value<double>()->default_value("1"));
    options.add_options()("injection-scale", "Factor of the injection", cxxopts::value<double>()->default_value("1"));
    options.add_options()("rendezvous-protocol", "Send after a rendezvous",
                          cxxopts::value<bool>()->default_value("false"));
    return options.parse(count, argument);
}

// Reads the file of --network-configuration. Throws std::runtime_error if it is wrong.
Configuration read(const std::string& path) {
    std::ifstream file(path);
    if (!file) {
        throw std::runtime_error("network configuration `" + path + "`: cannot be read");
    }
    const Json content = Json::parse(file);
    Configuration read;
    for (const auto& [key, value] : content.items()) {
        if (key == "fabric") {
            read.network.fabric = value;
        } else if (key == "scheme") {
            read.network.scheme = value;
        } else if (key == "transport") {
            read.network.transport = value;
        } else if (key == "control") {
            read.network.control = value;
        } else if (key == "faults") {
            read.network.faults = value;
        } else if (key == "seed") {
            read.network.seed = value;
        } else if (key == "dimensions") {
            read.dimensions = value.get<std::vector<int>>();
        } else {
            throw std::runtime_error("network configuration `" + path + "`: unknown key `" + key +
                                     "`; expected fabric, scheme, transport, control, faults, seed or dimensions");
        }
    }
    return read;
}

// Number of ranks of the workload: the product of the dimensions, or all hosts.
int ranks_of(Configuration& configuration, const pathloom::Network& network) {
    const int hosts = static_cast<int>(network.ranks());
    if (configuration.dimensions.empty()) {
        configuration.dimensions = {hosts};
    }
    int ranks = 1;
    for (const int size : configuration.dimensions) {
        ranks *= size;
    }
    if (ranks < 1 || ranks > hosts) {
        throw std::runtime_error("dimensions have " + std::to_string(ranks) + " ranks; expected 1 to " +
                                 std::to_string(hosts) + ", the hosts of the fabric");
    }
    return ranks;
}

void simulate(const cxxopts::ParseResult& options) {
    const auto text = [&options](const char* name) { return options[name].as<std::string>(); };
    AstraSim::LoggerFactory::init(text("logging-configuration"), text("logging-folder"));
    auto configuration = read(text("network-configuration"));
    pathloom::Network network(configuration.network);
    const int ranks = ranks_of(configuration, network);
    const std::vector<int> queues(configuration.dimensions.size(), options["num-queues-per-dim"].as<int>());
    Analytical::AnalyticalRemoteMemory memory(text("remote-memory-configuration"));
    std::vector<std::unique_ptr<pathloom::RankInterface>> interfaces;
    std::vector<std::unique_ptr<AstraSim::Sys>> systems;
    for (int rank = 0; rank < ranks; rank++) {
        interfaces.push_back(std::make_unique<pathloom::RankInterface>(rank, network));
        systems.push_back(std::make_unique<AstraSim::Sys>(
            rank, text("workload-configuration"), text("comm-group-configuration"), text("system-configuration"), &memory,
            interfaces.back().get(), configuration.dimensions, queues, options["injection-scale"].as<double>(),
            options["comm-scale"].as<double>(), options["rendezvous-protocol"].as<bool>()));
    }
    for (const auto& system : systems) {
        system->workload->fire();
    }
    network.run();
    int finished = 0;
    for (const auto& interface : interfaces) {
        finished += interface->finished() ? 1 : 0;
    }
    const auto totals = network.count();
    std::cout << "pathloom: " << finished << " of " << ranks << " ranks finished, the last event at " << network.now_ns()
              << " ns; " << totals.messages << " messages, " << totals.packets << " packets, " << totals.hops
              << " packet-hops, " << totals.dropped << " packets dropped" << std::endl;
    systems.clear();
    AstraSim::LoggerFactory::shutdown();
    if (finished < ranks) {
        throw std::runtime_error("some ranks have not finished their workloads, and nothing is left to happen");
    }
}

}  // namespace

int main(int count, char* argument[]) {
    try {
        simulate(parse(count, argument));
    } catch (const std::exception& error) {
        std::cerr << "pathloom: " << error.what() << std::endl;
        return 2;
    }
    return 0;
}
