// Congestion avoidance by byte counting, which ns-3 does not have.

#ifndef PATHLOOM_NS3_BYTE_COUNTING_H
#define PATHLOOM_NS3_BYTE_COUNTING_H

#include "ns3/internet-module.h"

namespace pathloom
{

/// ns-3's NewReno with the window growing by a segment per window of bytes acknowledged, as RFC 5681 §3.1 recommends.
///
/// ns3::TcpNewReno grows per acknowledgement, so half as fast if every other segment is acknowledged. ns3::TcpLinuxReno
/// counts segments, also those of the acknowledgement that ends a recovery. So it leaves recovery two segments above
/// the threshold; RFC 6582 §3.2 (3) requires the threshold.
class TcpByteCounting : public ns3::TcpNewReno
{
  public:
    static ns3::TypeId GetTypeId();

    std::string GetName() const override;
    void CongestionStateSet(ns3::Ptr<ns3::TcpSocketState> tcb,
                            const ns3::TcpSocketState::TcpCongState_t state) override;
    void IncreaseWindow(ns3::Ptr<ns3::TcpSocketState> tcb, uint32_t segmentsAcked) override;
    ns3::Ptr<ns3::TcpCongestionOps> Fork() override;

  private:
    ns3::TcpSocketState::TcpCongState_t m_state = ns3::TcpSocketState::CA_OPEN;
    bool m_recoveryEnds = false;
    uint32_t m_acked = 0;
};

} // namespace pathloom

#endif
