package ledger

import (
	"kici/internal/core/wire"
)

// Post puts a frame into the ledger, under the message id that is in it. It reports whether it was taken: log chunks are
// not when there is no room, and what lives for a connection only is not while there is none.
func (l *Ledger) Post(m wire.Message, e Entry) bool {
	raw, err := wire.Encode(m)
	if err != nil {
		l.log.Error("frame cannot be encoded", "err", err)
		return false
	}
	e.raw = raw
	e.ID = messageID(m)
	return l.add(&e)
}

// Send posts a frame that belongs to no job.
func (l *Ledger) Send(k Keep, m wire.Message) { l.Post(m, Entry{Keep: k}) }

// messageID is the id by which the server acknowledges a frame or answers it.
func messageID(m wire.Message) string {
	switch m := m.(type) {
	case wire.JobAck:
		return m.MessageID
	case wire.JobStatus:
		return m.MessageID
	case wire.StepStatus:
		return m.MessageID
	case wire.LogChunk:
		return m.MessageID
	case wire.ConcurrencyReport:
		return m.MessageID
	case wire.ApprovalRequest:
		return m.MessageID
	case wire.CacheUploadRequest:
		return m.MessageID
	case wire.ArtifactUploadRequest:
		return m.MessageID
	case wire.ArtifactCommitRequest:
		return m.MessageID
	}
	return ""
}
