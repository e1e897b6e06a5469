#include "byte_counting.h"

using namespace ns3;

namespace pathloom
{

NS_OBJECT_ENSURE_REGISTERED(TcpByteCounting);

TypeId
TcpByteCounting::GetTypeId()
{
    static TypeId tid = TypeId("pathloom::TcpByteCounting").SetParent<TcpNewReno>().AddConstructor<TcpByteCounting>();
    return tid;
}

std::string
TcpByteCounting::GetName() const
{
    return "TcpByteCounting";
}

void
TcpByteCounting::CongestionStateSet(Ptr<TcpSocketState>, const TcpSocketState::TcpCongState_t state)
{
    m_recoveryEnds = m_state == TcpSocketState::CA_RECOVERY && state == TcpSocketState::CA_OPEN;
    if (state != TcpSocketState::CA_DISORDER && m_state != TcpSocketState::CA_DISORDER)
    {
        m_acked = 0;
    }
    m_state = state;
}

void
TcpByteCounting::IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t segmentsAcked)
{
    if (m_recoveryEnds)
    {
        m_recoveryEnds = false;
        return;
    }
    if (tcb->m_cWnd < tcb->m_ssThresh)
    {
        SlowStart(tcb, segmentsAcked);
        return;
    }
    m_acked += segmentsAcked * tcb->m_segmentSize;
    if (m_acked >= tcb->m_cWnd)
    {
        m_acked -= tcb->m_cWnd;
        tcb->m_cWnd += tcb->m_segmentSize;
    }
}

Ptr<TcpCongestionOps>
TcpByteCounting::Fork()
{
    return CopyObject<TcpByteCounting>(this);
}

} // namespace pathloom
