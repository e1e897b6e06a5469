#include "common.h"

#include "byte_counting.h"

using namespace ns3;

namespace pathloom
{

/// The 14 bytes of Ethernet's header minus the 2 bytes of PPP's header on ns-3's point-to-point links.
static constexpr uint64_t MISSING_HEADER_BYTES = 12;

static TimeValue
Milliseconds(double ms)
{
    return TimeValue(NanoSeconds(static_cast<int64_t>(ms * 1e6)));
}

void
Tcp::AddTo(CommandLine& line)
{
    line.AddValue("congestion", "newreno, cubic or dctcp", congestion);
    line.AddValue("sack", "selective acknowledgements", sack);
    line.AddValue("byte-counting", "byte counting in congestion avoidance instead of ns-3's own NewReno", byteCounting);
    line.AddValue("iw", "initial window, bytes", initialWindowBytes);
    line.AddValue("ssthresh", "slow-start threshold at the start, bytes", initialSsthreshBytes);
    line.AddValue("rwnd", "what a sender may have outstanding, bytes", windowBytes);
    line.AddValue("acks", "full segments per acknowledgement", acks);
    line.AddValue("delayed-ack-ms", "longest delay of an acknowledgement", delayedAckMs);
    line.AddValue("min-rto-ms", "least retransmission time-out", minRtoMs);
    line.AddValue("initial-rto-ms", "time-out before the first RTT sample", initialRtoMs);
}

static TypeId
SocketType(const Tcp& tcp)
{
    if (tcp.congestion == "cubic")
    {
        return TcpCubic::GetTypeId();
    }
    if (tcp.congestion == "dctcp")
    {
        return TcpDctcp::GetTypeId();
    }
    return tcp.byteCounting ? TcpByteCounting::GetTypeId() : TcpNewReno::GetTypeId();
}

void
Tcp::Apply() const
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(SocketType(*this)));
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn",
                       EnumValue(congestion == "dctcp" ? TcpSocketState::On : TcpSocketState::Off));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(TcpClassicRecovery::GetTypeId()));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(sack));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::WindowScaling", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", Milliseconds(minRtoMs));
    Config::SetDefault("ns3::RttEstimator::InitialEstimation", Milliseconds(initialRtoMs));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", Milliseconds(initialRtoMs));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(MSS_BYTES));
    // The number of full segments that fit the window.
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(std::max(1U, initialWindowBytes / MSS_BYTES)));
    Config::SetDefault("ns3::TcpSocket::InitialSlowStartThreshold", UintegerValue(initialSsthreshBytes));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(acks));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", Milliseconds(delayedAckMs));
    // The buffer limits the outstanding bytes of a sender, so that it never reaches the receive window: ns-3 3.37
    // crashes if a sender in recovery has exactly that outstanding (TcpTxBuffer::NextSeg then returns an empty one).
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(windowBytes));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(2 * windowBytes));
    // A sender never gives up, even after many time-outs.
    Config::SetDefault("ns3::TcpSocket::DataRetries", UintegerValue(1000));
    Config::SetDefault("ns3::TcpSocket::ConnCount", UintegerValue(1000));
}

NetDeviceContainer
Join(Ptr<Node> a, Ptr<Node> b, const Cable& cable)
{
    // The time that the missing bytes of the header would take. The gap keeps the sender busy for this time, and the
    // longer delay makes the last bit arrive at the right time.
    const Time missing = NanoSeconds(static_cast<int64_t>(MISSING_HEADER_BYTES * 8'000'000'000ULL / cable.rateBps));
    PointToPointHelper helper;
    helper.SetDeviceAttribute("DataRate", DataRateValue(DataRate(cable.rateBps)));
    helper.SetDeviceAttribute("InterframeGap", TimeValue(missing));
    helper.SetChannelAttribute("Delay", TimeValue(NanoSeconds(cable.delayNs) + missing));
    helper.SetQueue("ns3::DropTailQueue<Packet>",
                    "MaxSize",
                    QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, cable.bufferPackets)));
    if (!cable.disciplined)
    {
        // The device's queue must be the only one: with flow control, ns-3 puts a queueing discipline before it.
        helper.DisableFlowControl();
    }
    return helper.Install(a, b);
}

Ptr<QueueDisc>
MarkAbove(Ptr<NetDevice> device, uint32_t packets, uint32_t bufferPackets, uint64_t rateBps)
{
    QueueOf(device)->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, 1));
    TrafficControlHelper helper;
    helper.SetRootQueueDisc("ns3::RedQueueDisc",
                            "MinTh",
                            DoubleValue(packets),
                            "MaxTh",
                            DoubleValue(packets),
                            "QW",
                            DoubleValue(1),
                            "Gentle",
                            BooleanValue(false),
                            "UseEcn",
                            BooleanValue(true),
                            "UseHardDrop",
                            BooleanValue(false),
                            "MeanPktSize",
                            UintegerValue(1514),
                            "LinkBandwidth",
                            DataRateValue(DataRate(rateBps)),
                            "MaxSize",
                            QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, bufferPackets)));
    return helper.Install(device).Get(0);
}

Ptr<Queue<Packet>>
QueueOf(Ptr<NetDevice> device)
{
    return DynamicCast<PointToPointNetDevice>(device)->GetQueue();
}

Source::Source(Address to)
    : m_to(to)
{
}

void
Source::StartApplication()
{
    m_socket = Socket::CreateSocket(GetNode(), TcpSocketFactory::GetTypeId());
    m_socket->Bind();
    m_socket->SetConnectCallback(MakeCallback(&Source::Connected, this), MakeNullCallback<void, Ptr<Socket>>());
    m_socket->SetSendCallback(MakeCallback(&Source::Fill, this));
    m_socket->TraceConnectWithoutContext("Tx", MakeCallback(&Source::Sent, this));
    m_socket->TraceConnectWithoutContext("CongState", MakeCallback(&Source::StateChanged, this));
    m_socket->Connect(m_to);
    m_socket->ShutdownRecv();
}

void
Source::Connected(Ptr<Socket> socket)
{
    Fill(socket, socket->GetTxAvailable());
}

void
Source::Fill(Ptr<Socket> socket, uint32_t roomBytes)
{
    if (roomBytes >= MSS_BYTES)
    {
        socket->Send(Create<Packet>(roomBytes));
    }
}

void
Source::Sent(Ptr<const Packet> packet, const TcpHeader& header, Ptr<const TcpSocketBase>)
{
    if (packet->GetSize() == 0)
    {
        return;
    }
    const SequenceNumber32 end = header.GetSequenceNumber() + packet->GetSize();
    if (m_sentAny && end <= m_high)
    {
        ++retransmits;
        return;
    }
    m_sentAny = true;
    m_high = end;
}

void
Source::StateChanged(TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t after)
{
    timeouts += after == TcpSocketState::CA_LOSS;
}

Flow::Flow(Ptr<Node> from, Ptr<Node> to, Ipv4Address address, uint16_t port, Time start)
    : source(CreateObject<Source>(InetSocketAddress(address, port)))
{
    PacketSinkHelper helper("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    sink = DynamicCast<PacketSink>(helper.Install(to).Get(0));
    from->AddApplication(source);
    source->SetStartTime(start);
}

} // namespace pathloom
