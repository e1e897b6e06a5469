// Runs long-lived TCP flows over a FatTree, from host x to host x + N/2. A hash of addresses and ports selects the
// shortest path of each flow. This is the work of `pathloom bench sim`, to measure the speed of ns-3.
//
// Prints one line of JSON: packet-hops (links crossed), CPU time of the simulation alone, goodput, peak memory.

#include "common.h"
#include "used.h"

#include <array>
using namespace ns3;
using namespace pathloom;

namespace
{

/// Routes by position in the tree, without a table look-up, which is the lowest cost of forwarding in ns-3. Hosts have
/// the addresses 10.pod.edge.(host + 1).
class FatTreeRouting : public Ipv4RoutingProtocol
{
  public:
    enum class Tier
    {
        HOST,
        EDGE,
        AGGREGATION,
        CORE
    };

    Tier tier = Tier::HOST;
    uint8_t pod = 0;
    /// Number of an edge switch in its pod.
    uint8_t edge = 0;
    /// Makes different switches choose differently.
    uint64_t salt = 0;
    Ipv4Address address;
    /// Routes by cable towards the cores, and by cable towards the hosts, in order of the nodes at their other ends.
    std::vector<Ptr<Ipv4Route>> up;
    std::vector<Ptr<Ipv4Route>> down;

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header&, Ptr<NetDevice>, Socket::SocketErrno& error) override
    {
        error = Socket::ERROR_NOTERROR;
        return up[0];
    }

    bool RouteInput(Ptr<const Packet> packet,
                    const Ipv4Header& header,
                    Ptr<const NetDevice>,
                    UnicastForwardCallback forward,
                    MulticastForwardCallback,
                    LocalDeliverCallback deliver,
                    ErrorCallback) override
    {
        if (tier == Tier::HOST)
        {
            deliver(packet, header, 1);
            return true;
        }
        forward(RouteTo(*packet, header), packet, header);
        return true;
    }

    void NotifyInterfaceUp(uint32_t) override
    {
    }

    void NotifyInterfaceDown(uint32_t) override
    {
    }

    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override
    {
    }

    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override
    {
    }

    void SetIpv4(Ptr<Ipv4>) override
    {
    }

    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override
    {
    }

  private:
    Ptr<Ipv4Route> RouteTo(const Packet& packet, const Ipv4Header& header) const
    {
        const uint32_t to = header.GetDestination().Get();
        const uint8_t toPod = to >> 16;
        const uint8_t toEdge = to >> 8;
        switch (tier)
        {
        case Tier::CORE:
            return down[toPod];
        case Tier::AGGREGATION:
            return toPod == pod ? down[toEdge] : Choose(packet, header);
        default:
            return toPod == pod && toEdge == edge ? down[(to & 0xff) - 1] : Choose(packet, header);
        }
    }

    Ptr<Ipv4Route> Choose(const Packet& packet, const Ipv4Header& header) const
    {
        // The TCP header comes first, and begins with the ports.
        std::array<uint8_t, 4> ports;
        packet.CopyData(ports.data(), ports.size());
        uint64_t hash = salt;
        for (const uint64_t word : {uint64_t{header.GetSource().Get()} << 32 | header.GetDestination().Get(),
                                    uint64_t{ports[0]} << 24 | ports[1] << 16 | ports[2] << 8 | ports[3]})
        {
            hash = Mix(hash ^ word);
        }
        return up[hash % up.size()];
    }

    /// The finalizer of MurmurHash3, which spreads each bit over all others.
    static uint64_t Mix(uint64_t x)
    {
        x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
        x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
        return x ^ (x >> 33);
    }
};

/// Gives each node its own [FatTreeRouting].
class FatTreeRoutingHelper : public Ipv4RoutingHelper
{
  public:
    FatTreeRoutingHelper* Copy() const override
    {
        return new FatTreeRoutingHelper(*this);
    }

    Ptr<Ipv4RoutingProtocol> Create(Ptr<Node>) const override
    {
        return CreateObject<FatTreeRouting>();
    }
};

struct Options
{
    uint32_t k = 8;
    uint64_t rateBps = 1'000'000'000;
    int64_t delayNs = 1'000;
    uint32_t buffer = 100;
    double durationS = 0.03;
    double jitterS = 0.001;
    uint32_t seed = 1;
    Tcp tcp;

    Options(int argc, char** argv)
    {
        CommandLine line(__FILE__);
        line.AddValue("k", "ports of a switch", k);
        line.AddValue("rate-bps", "rate of every cable", rateBps);
        line.AddValue("delay-ns", "delay of every cable, one way", delayNs);
        line.AddValue("buffer", "packets that may wait at either end of a cable", buffer);
        line.AddValue("duration-s", "simulated time", durationS);
        line.AddValue("jitter-s", "flows start at random within this time", jitterS);
        line.AddValue("seed", "of the starts and of the choice of paths", seed);
        tcp.AddTo(line);
        line.Parse(argc, argv);
        NS_ABORT_MSG_IF(k < 2 || k > 100 || k % 2 != 0, "k must be even, from 2 to 100");
    }
};

/// The FatTree; `hosts` are in order of pod, edge switch and port.
class FatTree
{
  public:
    NodeContainer hosts;
    std::vector<Ipv4Address> addresses;

    explicit FatTree(const Options& options)
        : m_cable{options.rateBps, options.delayNs, options.buffer},
          m_seed(options.seed)
    {
        m_internet.SetRoutingHelper(FatTreeRoutingHelper());
        m_internet.SetIpv6StackInstall(false);
        const uint32_t half = options.k / 2;
        std::vector<Ptr<Node>> cores;
        for (uint32_t i = 0; i < half * half; ++i)
        {
            cores.push_back(Make(FatTreeRouting::Tier::CORE, 0, 0));
        }
        for (uint32_t pod = 0; pod < options.k; ++pod)
        {
            MakePod(pod, half, cores);
        }
    }

    /// Packets that have left a link.
    uint64_t Hops() const
    {
        uint64_t hops = 0;
        for (const Ptr<NetDevice>& device : m_devices)
        {
            hops += QueueOf(device)->GetTotalReceivedPackets() - QueueOf(device)->GetNPackets();
        }
        return hops;
    }

    uint64_t Drops() const
    {
        uint64_t drops = 0;
        for (const Ptr<NetDevice>& device : m_devices)
        {
            drops += QueueOf(device)->GetTotalDroppedPackets();
        }
        return drops;
    }

  private:
    void MakePod(uint32_t pod, uint32_t half, const std::vector<Ptr<Node>>& cores)
    {
        std::vector<Ptr<Node>> aggregations;
        for (uint32_t a = 0; a < half; ++a)
        {
            aggregations.push_back(Make(FatTreeRouting::Tier::AGGREGATION, pod, 0));
            for (uint32_t c = 0; c < half; ++c)
            {
                Connect(aggregations[a], cores[a * half + c]);
            }
        }
        for (uint32_t e = 0; e < half; ++e)
        {
            const Ptr<Node> edge = Make(FatTreeRouting::Tier::EDGE, pod, e);
            for (const Ptr<Node>& aggregation : aggregations)
            {
                Connect(edge, aggregation);
            }
            for (uint32_t h = 0; h < half; ++h)
            {
                const Ptr<Node> host = Make(FatTreeRouting::Tier::HOST, pod, e);
                addresses.emplace_back(10U << 24 | pod << 16 | e << 8 | (h + 1));
                RoutingOf(host)->address = addresses.back();
                Connect(host, edge);
                hosts.Add(host);
            }
        }
    }

    static Ptr<FatTreeRouting> RoutingOf(Ptr<Node> node)
    {
        return DynamicCast<FatTreeRouting>(node->GetObject<Ipv4>()->GetRoutingProtocol());
    }

    Ptr<Node> Make(FatTreeRouting::Tier tier, uint8_t pod, uint8_t edge)
    {
        const Ptr<Node> node = CreateObject<Node>();
        m_internet.Install(node);
        const Ptr<FatTreeRouting> routing = RoutingOf(node);
        routing->tier = tier;
        routing->pod = pod;
        routing->edge = edge;
        routing->salt = uint64_t{m_seed} << 32 | node->GetId();
        return node;
    }

    void Connect(Ptr<Node> lower, Ptr<Node> upper)
    {
        const NetDeviceContainer devices = Join(lower, upper, m_cable);
        RoutingOf(lower)->up.push_back(Attach(lower, devices.Get(0)));
        RoutingOf(upper)->down.push_back(Attach(upper, devices.Get(1)));
    }

    Ptr<Ipv4Route> Attach(Ptr<Node> node, Ptr<NetDevice> device)
    {
        m_devices.push_back(device);
        const Ipv4Address address = RoutingOf(node)->address;
        const Ptr<Ipv4> ipv4 = node->GetObject<Ipv4>();
        const uint32_t interface = ipv4->AddInterface(device);
        if (RoutingOf(node)->tier == FatTreeRouting::Tier::HOST)
        {
            ipv4->AddAddress(interface, Ipv4InterfaceAddress(address, Ipv4Mask::GetOnes()));
        }
        ipv4->SetUp(interface);
        const Ptr<Ipv4Route> route = Create<Ipv4Route>();
        route->SetSource(address);
        route->SetGateway(Ipv4Address::GetZero());
        route->SetOutputDevice(device);
        return route;
    }

    Cable m_cable;
    uint32_t m_seed;
    InternetStackHelper m_internet;
    std::vector<Ptr<NetDevice>> m_devices;
};

} // namespace

int
main(int argc, char** argv)
{
    const Options options(argc, argv);
    options.tcp.Apply();
    RngSeedManager::SetSeed(options.seed);
    const FatTree tree(options);
    const Ptr<UniformRandomVariable> start = CreateObject<UniformRandomVariable>();
    const uint32_t count = tree.hosts.GetN();
    std::vector<Flow> flows;
    for (uint32_t from = 0; from < count; ++from)
    {
        const uint32_t to = (from + count / 2) % count;
        const Time at = Seconds(start->GetValue(0, options.jitterS));
        flows.emplace_back(tree.hosts.Get(from), tree.hosts.Get(to), tree.addresses[to], FIRST_PORT, at);
    }
    Simulator::Stop(Seconds(options.durationS));
    const double before = CpuSeconds();
    Simulator::Run();
    const double cpuS = CpuSeconds() - before;

    uint64_t bytes = 0;
    for (const Flow& flow : flows)
    {
        bytes += flow.sink->GetTotalRx();
    }
    std::cout.precision(12);
    std::cout << "{\"flows\":" << count << ",\"hops\":" << tree.Hops() << ",\"drops\":" << tree.Drops()
              << ",\"cpu_s\":" << cpuS << ",\"hops_per_cpu_s\":" << tree.Hops() / cpuS
              << ",\"goodput_bps\":" << bytes * 8.0 / options.durationS << ",\"events\":" << Simulator::GetEventCount()
              << ",\"peak_rss_mb\":" << PeakMegabytes() << "}" << std::endl;
    Simulator::Destroy();
    return 0;
}
