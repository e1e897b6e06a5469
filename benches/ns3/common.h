// Code of both ns-3 programs: links whose frames are as long as Pathloom's, the settings of TCP, senders and receivers.

#ifndef PATHLOOM_NS3_COMMON_H
#define PATHLOOM_NS3_COMMON_H

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace pathloom
{

/// Payload of a full segment, in bytes. With TCP's timestamps that makes an IP packet of 1500 bytes.
constexpr uint32_t MSS_BYTES = 1448;

/// Port that receivers listen on, from the first flow on.
constexpr uint16_t FIRST_PORT = 5001;

/// One cable: the same in both directions.
struct Cable
{
    uint64_t rateBps;
    int64_t delayNs;
    /// Packets that may wait, not counting the one being sent.
    uint32_t bufferPackets;
    /// Whether there is a queueing discipline before the device, which then reports free space to it.
    bool disciplined = false;
};

/// TCP, with Pathloom's defaults.
struct Tcp
{
    /// newreno, cubic or dctcp.
    std::string congestion = "newreno";
    bool sack = false;
    bool byteCounting = false;
    uint32_t initialWindowBytes = 12000;
    uint32_t initialSsthreshBytes = UINT32_MAX;
    uint32_t windowBytes = 16 << 20;
    uint32_t acks = 1;
    double delayedAckMs = 40;
    double minRtoMs = 200;
    double initialRtoMs = 1000;

    /// Adds one option per setting to a command line.
    void AddTo(ns3::CommandLine& line);
    /// Makes these the defaults of all sockets created from now on.
    void Apply() const;
};

/// Joins two nodes. Frames take the time on the wire that they take in Pathloom: data 1514 bytes, an acknowledgement 66.
ns3::NetDeviceContainer Join(ns3::Ptr<ns3::Node> a, ns3::Ptr<ns3::Node> b, const Cable& cable);

/// Puts a queue that marks packets before a device that [Join] made: RED with both thresholds equal and with the
/// present length as the average (RFC 8257 §3.1). The device's own queue then holds one packet.
ns3::Ptr<ns3::QueueDisc> MarkAbove(ns3::Ptr<ns3::NetDevice> device, uint32_t packets, uint32_t bufferPackets, uint64_t rateBps);

/// The queue of a device that [Join] made.
ns3::Ptr<ns3::Queue<ns3::Packet>> QueueOf(ns3::Ptr<ns3::NetDevice> device);

/// Sends without end over one TCP connection from its start on, and counts retransmissions and time-outs.
class Source : public ns3::Application
{
  public:
    explicit Source(ns3::Address to);

    /// Retransmitted segments.
    uint64_t retransmits = 0;
    /// Expiries of the retransmission timer; consecutive ones count once.
    uint64_t timeouts = 0;

  private:
    void StartApplication() override;
    void Connected(ns3::Ptr<ns3::Socket> socket);
    void Fill(ns3::Ptr<ns3::Socket> socket, uint32_t roomBytes);
    void Sent(ns3::Ptr<const ns3::Packet> packet, const ns3::TcpHeader& header, ns3::Ptr<const ns3::TcpSocketBase>);
    void StateChanged(ns3::TcpSocketState::TcpCongState_t before, ns3::TcpSocketState::TcpCongState_t after);

    ns3::Address m_to;
    ns3::Ptr<ns3::Socket> m_socket;
    bool m_sentAny = false;
    /// One past the last byte ever sent.
    ns3::SequenceNumber32 m_high;
};

/// A flow: a source at one host, a sink at another.
struct Flow
{
    ns3::Ptr<Source> source;
    ns3::Ptr<ns3::PacketSink> sink;

    Flow(ns3::Ptr<ns3::Node> from, ns3::Ptr<ns3::Node> to, ns3::Ipv4Address address, uint16_t port, ns3::Time start);
};

/// `[1,2,3]`.
template <typename T>
std::string
JsonList(const std::vector<T>& values)
{
    std::ostringstream text;
    for (const T& value : values)
    {
        text << (text.tellp() ? "," : "") << value;
    }
    return "[" + text.str() + "]";
}

} // namespace pathloom

#endif
