package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// idleTransaction is how long PostgreSQL lets a transaction wait for its client, in milliseconds. No transaction of ours
	// waits for anything but the database, so one that does belongs to a process that is suspended, and its locks would keep
	// the others from taking over what it had.
	idleTransaction = "5000"
	// statementTime is how long PostgreSQL works on one statement, or has it wait for a lock, unless the URL says
	// statement_timeout. The statements of ours take milliseconds; those that may not have TakeTime.
	statementTime = "60s"
	// connectTime bounds the way to a connection, unless the URL says connect_timeout, and the question to one that was not
	// used for a moment whether it is still there.
	connectTime = 10 * time.Second
	pingTime    = 3 * time.Second
)

// userTimeout is how long what was sent may wait for the other machine to have received it, and how long an idle
// connection goes on when that machine answers nothing. Packets that get lost on the way look like a slow database
// otherwise, for as long as the kernel repeats them: a quarter of an hour.
const userTimeout = 20 * time.Second

// dialer makes the connections to PostgreSQL. Keep-alive probes are for every system, and end an idle connection;
// guard is for what was sent.
var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: userTimeout / 2, Interval: userTimeout / 4, Count: 2},
	Control: func(network, _ string, raw syscall.RawConn) error {
		if !strings.HasPrefix(network, "tcp") {
			return nil // a socket of this machine
		}
		return guard(raw)
	},
}

// limit has nothing last for ever, on either side.
func (p *postgres) limit(config *pgxpool.Config) error {
	conn := config.ConnConfig
	idle := takeParam(conn, "idle_in_transaction_session_timeout", idleTransaction)
	statement := takeParam(conn, "statement_timeout", statementTime)
	limit, err := duration(statement)
	if err != nil {
		return fmt.Errorf("statement_timeout of the URL: %w", err)
	}
	p.patience = limit + limit/4 // PostgreSQL is the first to notice, where it can
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectTime
	}
	if p.patience > 0 {
		p.queueing = max(p.patience, conn.ConnectTimeout)
	}
	config.PingTimeout = pingTime
	conn.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		under, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &attentiveConn{Conn: under, silent: p.distrust}, nil
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, conn.Config().ConnectTimeout)
		defer cancel()
		_, err := conn.PgConn().ExecParams(ctx, limitSession, [][]byte{[]byte(idle), []byte(statement)}, nil, nil, nil).Close()
		if c := attentive(conn.PgConn().Conn()); c != nil {
			c.limit.Store(int64(p.patience)) // what came before has the limit of making a connection
		}
		return err
	}
	return nil
}

// limitSession says by a statement what could be said with the start of a connection, if PgBouncer did not refuse that.
const limitSession = `SELECT set_config('idle_in_transaction_session_timeout', $1, false), set_config('statement_timeout', $2, false)`

// takeParam takes a setting out of those that are sent with the start of a connection.
func takeParam(config *pgx.ConnConfig, name, otherwise string) string {
	value := cmp.Or(config.RuntimeParams[name], otherwise)
	delete(config.RuntimeParams, name)
	return value
}

// distrust closes all connections, those in use once they come back: what lies between swallowed the answers to all of
// them. The next ones are new.
func (p *postgres) distrust() { p.pool.Reset() }

// silenceError says that the database did not answer in time. It is no time-out in the sense of net.Error, after which a
// connection may be read again: the answer to one statement must never be taken for that to the next.
type silenceError struct{ limit time.Duration }

func (e silenceError) Error() string {
	return fmt.Sprintf("the database has not answered for %s", e.limit)
}

// Timeout is net.Error's.
func (silenceError) Timeout() bool { return false }

// Temporary is net.Error's.
func (silenceError) Temporary() bool { return false }

// attentiveConn is a connection on which somebody always waits for an answer when it is read, and not for longer than a
// limit. A machine between, such as a proxy or a connection pooler that hangs, takes what is sent and passes on nothing;
// neither the kernel nor PostgreSQL notices that.
type attentiveConn struct {
	net.Conn
	limit  atomic.Int64 // nanoseconds, 0 for none
	lent   atomic.Bool  // somebody has it from the pool
	silent func()       // called when the limit has passed

	mu     sync.Mutex
	asked  [2]time.Time // deadlines that the driver set, for reads and for writes
	waited [2]time.Time // those of the limit, while there is a read or a write
}

const (
	reading = iota
	writing
)

// Read is net.Conn's.
func (c *attentiveConn) Read(b []byte) (int, error) { return c.within(reading, c.Conn.Read, b) }

// Write is net.Conn's.
func (c *attentiveConn) Write(b []byte) (int, error) { return c.within(writing, c.Conn.Write, b) }

func (c *attentiveConn) within(way int, do func([]byte) (int, error), b []byte) (int, error) {
	limit := time.Duration(c.limit.Load())
	var until time.Time
	if limit > 0 {
		until = time.Now().Add(limit)
	}
	if err := c.begin(way, until); err != nil {
		return 0, err
	}
	n, err := do(b)
	c.end(way)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && limit > 0 && !time.Now().Before(until) {
		c.silent()
		err = silenceError{limit}
	}
	return n, err
}

// begin has a read or a write end at a time, the zero one for none.
func (c *attentiveConn) begin(way int, until time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waited[way] = until
	return c.setLocked(way)
}

// end leaves the deadline to the next read or write to set, which spares the timer a change.
func (c *attentiveConn) end(way int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waited[way] = time.Time{}
}

// SetDeadline is net.Conn's. The driver ends a statement with it, whose context has ended.
func (c *attentiveConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = [2]time.Time{t, t}
	if err := c.setLocked(reading); err != nil {
		return err
	}
	return c.setLocked(writing)
}

// SetReadDeadline is net.Conn's.
func (c *attentiveConn) SetReadDeadline(t time.Time) error { return c.ask(reading, t) }

// SetWriteDeadline is net.Conn's.
func (c *attentiveConn) SetWriteDeadline(t time.Time) error { return c.ask(writing, t) }

func (c *attentiveConn) ask(way int, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[way] = t
	return c.setLocked(way)
}

// setLocked has the earlier of both deadlines count.
func (c *attentiveConn) setLocked(way int) error {
	until := c.asked[way]
	if waited := c.waited[way]; !waited.IsZero() && (until.IsZero() || waited.Before(until)) {
		until = waited
	}
	if way == reading {
		return c.Conn.SetReadDeadline(until)
	}
	return c.Conn.SetWriteDeadline(until)
}

// attentive finds the connection under another that encrypts.
func attentive(conn net.Conn) *attentiveConn {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	c, _ := conn.(*attentiveConn)
	return c
}

// TakeTime has no limit of time end the statements that follow in this transaction. It is for what reads or rewrites whole
// tables, such as a migration. SQLite has no limits.
func (tx *Tx) TakeTime(ctx context.Context) error {
	within, ok := tx.transaction.(*postgresTx)
	if !ok {
		return nil
	}
	within.takeTime()
	return tx.Do(ctx, "SET LOCAL statement_timeout = 0")
}

// takeTime has the client wait for answers as long as it takes, until the transaction ends.
func (tx *postgresTx) takeTime() {
	conn := attentive(tx.conn.PgConn().Conn())
	if conn == nil || tx.hurry != nil {
		return
	}
	limit := conn.limit.Swap(0)
	tx.hurry = func() { conn.limit.Store(limit) }
}

// duration reads a time as PostgreSQL writes it in a setting: a number of milliseconds, or one with a unit.
func duration(setting string) (time.Duration, error) {
	if ms, err := strconv.ParseUint(setting, 10, 31); err == nil {
		return time.Duration(ms) * time.Millisecond, nil
	}
	d, err := time.ParseDuration(strings.ReplaceAll(strings.ReplaceAll(setting, " ", ""), "min", "m"))
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a time such as 60000, 60s or 1min", setting)
	}
	return d, nil
}
