// Runs transfers with htsim's DCTCP over its FatTree. htsim has the sender (dctcp.cpp), but no program that uses it.
//
// Reads a line for each transfer on standard input: source, target, aggregation switch of the pod, core of that switch,
// packets. Prints its source, its target and the time in us at which its last acknowledgement was back.
//
// Usage: dctcp HOSTS RATE_MBPS FRAME_BYTES QUEUE_PACKETS SLOW_LINKS END_US

#include "dctcp.h"
#include "eventlist.h"
#include "fat_tree_topology.h"
#include "logfile.h"
#include "main.h"
#include "network.h"
#include "tcp.h"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

// The sources of htsim name the list of events.
EventList eventlist;

namespace
{

/// A sender that notes when its last byte was acknowledged.
class Sender : public DCTCPSrc
{
  public:
    Sender(EventList& events, uint64_t bytes)
        : DCTCPSrc(nullptr, nullptr, events),
          m_bytes(bytes)
    {
        set_flowsize(bytes);
        // `set_flowsize` adds a packet for the SYN, which here is one byte.
        _flow_size = bytes + 1;
    }

    void receivePacket(Packet& packet) override
    {
        DCTCPSrc::receivePacket(packet);
        if (endedUs < 0 && _last_acked > m_bytes)
        {
            endedUs = timeAsUs(eventlist().now());
        }
    }

    double endedUs = -1;

  private:
    uint64_t m_bytes;
};

struct Transfer
{
    uint32_t from, to;
    std::unique_ptr<Sender> sender;
    std::unique_ptr<TcpSink> sink;
};

/// The path through this aggregation switch of the pod and this core of it, or the part of it that there is.
const Route*
PathOf(FatTreeTopology& tree, uint32_t from, uint32_t to, size_t aggregation, size_t core)
{
    const std::vector<const Route*>& paths = *tree.get_bidir_paths(from, to, false);
    const size_t half = paths.size() <= 1 ? 1 : tree.agg_switches_per_pod();
    const size_t place = paths.size() > half ? aggregation * half + core : paths.size() > 1 ? aggregation : 0;
    return paths.at(place);
}

} // namespace

int
main(int argc, char** argv)
{
    if (argc != 7)
    {
        std::cerr << "expected HOSTS RATE_MBPS FRAME_BYTES QUEUE_PACKETS SLOW_LINKS END_US" << std::endl;
        return 2;
    }
    // htsim reports on standard output while it builds the tree.
    std::ostringstream silent;
    std::streambuf* output = std::cout.rdbuf(silent.rdbuf());
    Packet::set_packet_size(std::atoi(argv[3]));
    const auto slow = static_cast<uint32_t>(std::atoi(argv[5]));
    eventlist.setEndtime(timeFromUs(std::atof(argv[6])));
    Logfile log("/dev/null", eventlist);
    FatTreeTopology tree(std::atoi(argv[1]),
                         speedFromMbps(std::atof(argv[2])),
                         memFromPkt(std::atoi(argv[4])),
                         nullptr,
                         &eventlist,
                         nullptr,
                         ECN,
                         FAIR_PRIO,
                         slow);
    TcpRtxTimerScanner timers(timeFromMs(10), eventlist);
    std::vector<Transfer> transfers;
    uint32_t from = 0, to = 0;
    size_t aggregation = 0, core = 0;
    uint64_t packets = 0;
    while (std::cin >> from >> to >> aggregation >> core >> packets)
    {
        Transfer transfer{from, to, std::make_unique<Sender>(eventlist, packets * Packet::data_packet_size()), nullptr};
        transfer.sink = std::make_unique<TcpSink>();
        timers.registerTcp(*transfer.sender);
        auto* out = new Route(*PathOf(tree, from, to, aggregation, core));
        auto* back = new Route(*PathOf(tree, to, from, aggregation, core));
        out->push_back(transfer.sink.get());
        back->push_back(transfer.sender.get());
        transfer.sender->connect(*out, *back, *transfer.sink, 0);
        transfers.push_back(std::move(transfer));
    }
    while (eventlist.doNextEvent())
    {
    }
    std::cout.rdbuf(output);
    for (const Transfer& transfer : transfers)
    {
        std::cout << transfer.from << ' ' << transfer.to << ' ' << transfer.sender->endedUs << '\n';
    }
    return 0;
}
