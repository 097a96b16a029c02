package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pingAfter is how long a connection may be idle before it is asked whether it is still there.
const pingAfter = time.Second

// lost counts the connections that ended otherwise than by the pool.
type lost struct{ idle, used atomic.Int64 }

// watch has a pool count them. One that ended by itself is closed before the pool closes it.
func (l *lost) watch(config *pgxpool.Config) {
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		if c := attentive(p.Conn.PgConn().Conn()); c != nil {
			c.lent.Store(false)
		}
		return p.IdleDuration > pingAfter
	}
	config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
		if c := attentive(conn.PgConn().Conn()); c != nil {
			c.lent.Store(true)
		}
		return true, nil
	}
	config.BeforeClose = func(conn *pgx.Conn) {
		c := attentive(conn.PgConn().Conn())
		switch {
		case !conn.IsClosed() || c == nil:
		case c.lent.Load():
			l.used.Add(1)
		default:
			l.idle.Add(1)
		}
	}
}

// Lost tells how many connections to PostgreSQL have ended by themselves since the last call, while nobody used them and
// while somebody did. SQLite has none.
func (db *DB) Lost() (idle, used int64) {
	p, ok := db.writer.(*postgres)
	if !ok {
		return 0, 0
	}
	return p.lost.idle.Swap(0), p.lost.used.Swap(0)
}
