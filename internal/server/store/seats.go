package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// usualSeats is how many connections are opened without a wait. They keep two processors of this server and as many of the
	// database's busy.
	usualSeats = 4
	// seatWait is how long who needs one more waits for one of those that there are.
	seatWait = 20 * time.Millisecond
)

// seats are how many may use a pool of connections at once. To open a connection, and to prepare on it what is prepared on
// the others, costs the database some tens of milliseconds; one that is in use comes back after a few. So a crowd shares few
// of them. Who waits in vain brings a seat, which stays: the connections are in use for long, or far from their database.
type seats struct {
	free chan struct{} // holds as many as there may be connections
	wait time.Duration
}

func newSeats(most int32) seats {
	s := seats{make(chan struct{}, most), seatWait}
	for range min(usualSeats, most) {
		s.free <- struct{}{}
	}
	return s
}

// take waits for a seat that is given back, or until it is time to bring one.
func (s seats) take(ctx context.Context) error {
	select {
	case <-s.free:
		return nil
	default:
	}
	patience := time.NewTimer(s.wait)
	defer patience.Stop()
	select {
	case <-s.free:
	case <-patience.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// give gives a seat to the next. One that was brought is dropped when all connections have theirs.
func (s seats) give() {
	select {
	case s.free <- struct{}{}:
	default:
	}
}

// lent is a connection out of the pool.
type lent struct {
	*pgxpool.Conn
	seats    seats
	returned bool
}

// Close is io.Closer's. It gives the connection back, and then its seat, so that the next finds it there. Closed twice does
// no harm.
func (l *lent) Close() error {
	if !l.returned {
		l.returned = true
		l.Release()
		l.seats.give()
	}
	return nil
}
