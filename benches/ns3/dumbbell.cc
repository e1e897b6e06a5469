// Runs long-lived TCP flows from the hosts of one switch to those of another, over one shared cable.
//
// Prints one line of JSON: the bytes of each flow, goodput, and mean queue and drops of the shared cable, from 0 s on.

#include "common.h"

using namespace ns3;
using namespace pathloom;

namespace
{

/// Measures the queue and drops of a cable in one direction.
class Meter
{
  public:
    explicit Meter(Ptr<NetDevice> device)
    {
        QueueOf(device)->TraceConnectWithoutContext("PacketsInQueue", MakeCallback(&Meter::DeviceChanged, this));
        QueueOf(device)->TraceConnectWithoutContext("Drop", MakeCallback(&Meter::Dropped, this));
        device->TraceConnectWithoutContext("PhyTxBegin", MakeCallback(&Meter::Begun, this));
    }

    /// Counts the packets in a queue before the device too.
    void Add(Ptr<QueueDisc> disc)
    {
        disc->TraceConnectWithoutContext("PacketsInQueue", MakeCallback(&Meter::DiscChanged, this));
        disc->TraceConnectWithoutContext("Drop", MakeCallback(&Meter::DiscDropped, this));
    }

    /// Mean number of packets waiting up to now.
    double MeanQueue()
    {
        Account();
        return m_packetSeconds / Simulator::Now().GetSeconds();
    }

    uint64_t drops = 0;
    uint64_t packets = 0;
    uint32_t most = 0;

  private:
    void Account()
    {
        const Time now = Simulator::Now();
        m_packetSeconds += (m_inDevice + m_inDisc) * (now - m_since).GetSeconds();
        m_since = now;
        most = std::max(most, m_inDevice + m_inDisc);
    }

    void DeviceChanged(uint32_t, uint32_t length)
    {
        Account();
        m_inDevice = length;
    }

    void DiscChanged(uint32_t, uint32_t length)
    {
        Account();
        m_inDisc = length;
    }

    void Dropped(Ptr<const Packet>)
    {
        ++drops;
    }

    void DiscDropped(Ptr<const QueueDiscItem>)
    {
        ++drops;
    }

    void Begun(Ptr<const Packet>)
    {
        ++packets;
    }

    Time m_since;
    uint32_t m_inDevice = 0;
    uint32_t m_inDisc = 0;
    double m_packetSeconds = 0;
};

/// Options of the command line.
struct Options
{
    uint64_t rateBps = 10'000'000;
    uint64_t accessBps = 1'000'000'000;
    int64_t delayNs = 1'000'000;
    int64_t accessDelayNs = 1'000;
    uint32_t buffer = 100;
    uint32_t accessBuffer = 1000;
    /// Packets that may wait for the shared cable before arriving packets are marked; 0 for no marks.
    uint32_t mark = 0;
    double durationS = 60;
    std::string starts = "0";
    Tcp tcp;

    Options(int argc, char** argv)
    {
        CommandLine line(__FILE__);
        line.AddValue("rate-bps", "rate of the shared cable", rateBps);
        line.AddValue("access-bps", "rate of the hosts' cables", accessBps);
        line.AddValue("delay-ns", "delay of the shared cable, one way", delayNs);
        line.AddValue("access-delay-ns", "delay of a host's cable, one way", accessDelayNs);
        line.AddValue("buffer", "packets that may wait at either end of the shared cable", buffer);
        line.AddValue("access-buffer", "packets that may wait at either end of a host's cable", accessBuffer);
        line.AddValue("mark", "packets that may wait before those that come are marked; 0 for no marks", mark);
        line.AddValue("duration-s", "simulated time", durationS);
        line.AddValue("starts-s", "start of each flow, with commas between; there are as many flows", starts);
        tcp.AddTo(line);
        line.Parse(argc, argv);
    }

    std::vector<double> Starts() const
    {
        std::vector<double> times;
        std::istringstream text(starts);
        for (std::string part; std::getline(text, part, ',');)
        {
            times.push_back(std::stod(part));
        }
        return times;
    }
};

/// Hosts, switches and cables: flow i runs from `left[i]` to `right[i]`.
struct Dumbbell
{
    NodeContainer left;
    NodeContainer right;
    NodeContainer switches;
    std::vector<Ipv4Address> rightAddresses;
    Ptr<NetDevice> bottleneck;
    /// Queueing discipline that marks packets before the bottleneck, if marks are used.
    Ptr<QueueDisc> marker;

    Dumbbell(const Options& options, uint32_t flows)
    {
        left.Create(flows);
        right.Create(flows);
        switches.Create(2);
        InternetStackHelper().InstallAll();
        const Cable access{options.accessBps, options.accessDelayNs, options.accessBuffer};
        const NetDeviceContainer middle =
            Join(switches.Get(0), switches.Get(1), {options.rateBps, options.delayNs, options.buffer, options.mark > 0});
        bottleneck = middle.Get(0);
        if (options.mark > 0)
        {
            marker = MarkAbove(bottleneck, options.mark, options.buffer, options.rateBps);
            MarkAbove(middle.Get(1), options.mark, options.buffer, options.rateBps);
        }
        Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
        addresses.Assign(middle);
        for (uint32_t i = 0; i < flows; ++i)
        {
            addresses.NewNetwork();
            addresses.Assign(Join(left.Get(i), switches.Get(0), access));
            addresses.NewNetwork();
            rightAddresses.push_back(addresses.Assign(Join(right.Get(i), switches.Get(1), access)).GetAddress(0));
        }
        Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    }
};

} // namespace

int
main(int argc, char** argv)
{
    const Options options(argc, argv);
    options.tcp.Apply();
    const std::vector<double> starts = options.Starts();
    const Dumbbell net(options, starts.size());
    Meter meter(net.bottleneck);
    if (net.marker)
    {
        meter.Add(net.marker);
    }
    std::vector<Flow> flows;
    for (uint32_t i = 0; i < starts.size(); ++i)
    {
        flows.emplace_back(net.left.Get(i), net.right.Get(i), net.rightAddresses[i], FIRST_PORT, Seconds(starts[i]));
    }
    Simulator::Stop(Seconds(options.durationS));
    Simulator::Run();

    std::vector<uint64_t> delivered;
    std::vector<uint64_t> retransmits;
    std::vector<uint64_t> timeouts;
    uint64_t bytes = 0;
    for (const Flow& flow : flows)
    {
        delivered.push_back(flow.sink->GetTotalRx());
        retransmits.push_back(flow.source->retransmits);
        timeouts.push_back(flow.source->timeouts);
        bytes += delivered.back();
    }
    std::cout.precision(12);
    std::cout << "{\"delivered_bytes\":" << JsonList(delivered) << ",\"goodput_bps\":" << bytes * 8.0 / options.durationS
              << ",\"retransmits\":" << JsonList(retransmits) << ",\"timeouts\":" << JsonList(timeouts)
              << ",\"mean_queue\":" << meter.MeanQueue() << ",\"max_queue\":" << meter.most
              << ",\"drops\":" << meter.drops << ",\"packets\":" << meter.packets << "}" << std::endl;
    Simulator::Destroy();
    return 0;
}
