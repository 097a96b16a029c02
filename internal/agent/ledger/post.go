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
	e.ID = wire.ID(m)
	return l.add(&e)
}

// Send posts a frame that belongs to no job.
func (l *Ledger) Send(k Keep, m wire.Message) { l.Post(m, Entry{Keep: k}) }
