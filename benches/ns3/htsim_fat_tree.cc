// Runs stride(N/2) over a FatTree on htsim to measure its speed. The program is built with the sources of htsim.
//
// The ports are htsim's plain drop-tail queues, the cables its pipes, the flows its TCP. A flow's data and
// acknowledgements each take one path, drawn at random, as with ECMP. Prints its figures as JSON.

#include "eventlist.h"
#include "network.h"
#include "pipe.h"
#include "queue.h"
#include "route.h"
#include "tcp.h"
#include "used.h"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace
{

/// A full frame and its payload, as in Pathloom: Ethernet, IP, and TCP with timestamps.
constexpr int FRAME_BYTES = 1514;
constexpr int MSS_BYTES = 1448;
/// Pathloom's initial window.
constexpr int FIRST_SEGMENTS = 8;

struct Options
{
    uint32_t k = 8;
    double rateMbps = 1000;
    double delayUs = 1;
    uint32_t buffer = 100;
    double durationS = 0.015;
    double jitterS = 0.001;
    uint32_t windowSegments = 176;
    uint32_t seed = 1;
};

/// Reads `--name=value`.
Options
Read(int argc, char** argv)
{
    Options options;
    for (int i = 1; i < argc; ++i)
    {
        const std::string argument = argv[i];
        const size_t equals = argument.find('=');
        const std::string name = argument.substr(0, equals);
        const double value = equals == std::string::npos ? 0 : std::atof(argument.c_str() + equals + 1);
        if (name == "--k")
        {
            options.k = static_cast<uint32_t>(value);
        }
        else if (name == "--duration-s")
        {
            options.durationS = value;
        }
        else if (name == "--buffer")
        {
            options.buffer = static_cast<uint32_t>(value);
        }
        else if (name == "--window-segments")
        {
            options.windowSegments = static_cast<uint32_t>(value);
        }
        else if (name == "--seed")
        {
            options.seed = static_cast<uint32_t>(value);
        }
        else
        {
            std::cerr << argument << ": expected --k, --duration-s, --buffer, --window-segments or --seed" << std::endl;
            std::exit(2);
        }
    }
    if (options.k < 4 || options.k % 2 != 0)
    {
        std::cerr << "--k: expected an even number, 4 or more" << std::endl;
        std::exit(2);
    }
    return options;
}

/// A drop-tail queue that counts the packets that it has sent.
class Port : public Queue
{
  public:
    Port(linkspeed_bps rate, mem_b bytes, EventList& events)
        : Queue(rate, bytes, events, nullptr)
    {
    }

    uint64_t sent = 0;

  protected:
    void completeService() override
    {
        ++sent;
        Queue::completeService();
    }
};

/// One direction of a cable.
struct Link
{
    std::unique_ptr<Port> port;
    std::unique_ptr<Pipe> pipe;
};

/// The tree. Switches and hosts are numbered pod by pod; aggregation switch `a` of a pod is joined to cores `a * k/2`
/// and on.
class FatTree
{
  public:
    FatTree(const Options& options, EventList& events)
        : m_half(options.k / 2)
    {
        const uint32_t each = options.k * m_half * m_half;
        for (std::vector<Link>* links : {&m_hostUp, &m_hostDown, &m_edgeUp, &m_edgeDown, &m_coreUp, &m_coreDown})
        {
            for (uint32_t i = 0; i < each; ++i)
            {
                // The queue of htsim also counts the packet that is being sent.
                const mem_b bytes = (mem_b{options.buffer} + 1) * FRAME_BYTES;
                Link link;
                link.port = std::make_unique<Port>(speedFromMbps(options.rateMbps), bytes, events);
                link.pipe = std::make_unique<Pipe>(timeFromUs(options.delayUs), events);
                m_all.push_back(link.port.get());
                links->push_back(std::move(link));
            }
        }
    }

    uint32_t Hosts() const
    {
        return 2 * m_half * m_half * m_half;
    }

    /// Adds the path between hosts of different pods, through this aggregation switch of each pod and this core of it.
    void AddWay(Route& route, uint32_t from, uint32_t to, uint32_t aggregation, uint32_t core) const
    {
        const uint32_t pod = m_half * m_half;
        Add(route, m_hostUp[from]);
        Add(route, m_edgeUp[from / m_half * m_half + aggregation]);
        Add(route, m_coreUp[from / pod * pod + aggregation * m_half + core]);
        Add(route, m_coreDown[to / pod * pod + aggregation * m_half + core]);
        Add(route, m_edgeDown[to / m_half * m_half + aggregation]);
        Add(route, m_hostDown[to]);
    }

    /// Packets that have left a port.
    uint64_t Hops() const
    {
        uint64_t hops = 0;
        for (const Port* port : m_all)
        {
            hops += port->sent;
        }
        return hops;
    }

    uint64_t Drops() const
    {
        uint64_t drops = 0;
        for (const Port* port : m_all)
        {
            drops += port->num_drops();
        }
        return drops;
    }

  private:
    static void Add(Route& route, const Link& link)
    {
        route.push_back(link.port.get());
        route.push_back(link.pipe.get());
    }

    uint32_t m_half;
    std::vector<Link> m_hostUp, m_hostDown, m_edgeUp, m_edgeDown, m_coreUp, m_coreDown;
    std::vector<const Port*> m_all;
};

/// A long-lived connection.
struct Flow
{
    std::unique_ptr<TcpSrc> source;
    std::unique_ptr<TcpSink> sink = std::make_unique<TcpSink>();
    Route data, acknowledgements;
};

} // namespace

int
main(int argc, char** argv)
{
    const Options options = Read(argc, argv);
    // htsim's own output goes to stderr, the figures go to stdout.
    std::streambuf* out = std::cout.rdbuf(std::cerr.rdbuf());
    Packet::set_packet_size(FRAME_BYTES);
    EventList& events = EventList::getTheEventList();
    EventList::setEndtime(timeFromSec(options.durationS));
    const FatTree tree(options, events);
    TcpRtxTimerScanner timers(timeFromMs(10), events);
    std::mt19937_64 random(options.seed);
    std::uniform_real_distribution<double> start(0, options.jitterS);
    std::uniform_int_distribution<uint32_t> choice(0, options.k / 2 - 1);
    std::vector<Flow> flows(tree.Hosts());
    for (uint32_t from = 0; from < tree.Hosts(); ++from)
    {
        Flow& flow = flows[from];
        const uint32_t to = (from + tree.Hosts() / 2) % tree.Hosts();
        flow.source = std::make_unique<TcpSrc>(nullptr, nullptr, events);
        flow.source->set_cwnd(FIRST_SEGMENTS * FRAME_BYTES);
        flow.source->set_ssthresh(UINT32_MAX);
        flow.source->_maxcwnd = options.windowSegments * FRAME_BYTES;
        uint32_t aggregation = choice(random), core = choice(random);
        tree.AddWay(flow.data, from, to, aggregation, core);
        flow.data.push_back(flow.sink.get());
        aggregation = choice(random), core = choice(random);
        tree.AddWay(flow.acknowledgements, to, from, aggregation, core);
        flow.acknowledgements.push_back(flow.source.get());
        timers.registerTcp(*flow.source);
        flow.source->connect(flow.data, flow.acknowledgements, *flow.sink, timeFromSec(start(random)));
    }
    const double before = CpuSeconds();
    while (EventList::doNextEvent())
    {
    }
    const double cpuS = CpuSeconds() - before;

    uint64_t segments = 0;
    for (const Flow& flow : flows)
    {
        segments += flow.sink->_cumulative_ack / FRAME_BYTES;
    }
    std::cout.rdbuf(out);
    std::cout.precision(12);
    std::cout << "{\"flows\":" << flows.size() << ",\"hops\":" << tree.Hops() << ",\"drops\":" << tree.Drops()
              << ",\"cpu_s\":" << cpuS << ",\"hops_per_cpu_s\":" << tree.Hops() / cpuS
              << ",\"goodput_bps\":" << segments * MSS_BYTES * 8.0 / options.durationS
              << ",\"peak_rss_mb\":" << PeakMegabytes() << "}" << std::endl;
    return 0;
}
