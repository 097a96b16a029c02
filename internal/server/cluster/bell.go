package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kici/internal/kit/service"
	"kici/internal/server/store"
)

const (
	// channel is PostgreSQL's, on which all wake-ups travel: the name of the node, and those of the lines that it rings.
	channel = "kici"
	// rest is between two words to the other nodes. What is rung meanwhile goes with the next: a node under load would
	// otherwise say several for every run.
	rest = 10 * time.Millisecond
	// listenCheck is how long a quiet connection is trusted before it is asked whether it is still there.
	listenCheck = 30 * time.Second
	// databaseTime bounds one word with the database. A wake-up that takes longer is lost; a tick replaces it.
	databaseTime = 5 * time.Second
)

// Bell carries wake-ups between the nodes that share a PostgreSQL database. A wake-up may be lost, when the connection
// is, so whoever is woken by one also looks from time to time by itself. With SQLite there is one node, and no bell.
type Bell struct {
	url    string
	db     *store.DB
	node   string
	log    *slog.Logger
	lines  []*line
	remote service.Poke // there is something to tell the other nodes
	alone  atomic.Bool  // there are none
}

// line is one kind of wake-up.
type line struct {
	name  string
	rung  service.Poke // on this node
	local service.Poke // whom it wakes here
	due   atomic.Bool  // the other nodes are to be told
}

// NewBell makes the bell of a node. url is that of the database db.
func NewBell(url string, db *store.DB, nodeID string, log *slog.Logger) *Bell {
	return &Bell{url: url, db: db, node: nodeID, log: log, remote: service.NewPoke()}
}

// Line makes a poke that wakes local here, and its like of the same name on every other node. It is called before Start.
func (b *Bell) Line(name string, local service.Poke) service.Poke {
	if b.db.Dialect != store.Postgres {
		return local
	}
	l := &line{name: name, rung: service.NewPoke(), local: local}
	b.lines = append(b.lines, l)
	return l.rung
}

// Alone says whether this node knows of no other. It tells nobody anything then, until another is heard: each says that it is
// there as soon as it listens.
func (b *Bell) Alone(yes bool) { b.alone.Store(yes) }

// Start runs the loops of the bell in the group.
func (b *Bell) Start(loops *service.Group) {
	if len(b.lines) == 0 {
		return
	}
	for _, l := range b.lines {
		loops.Go("bell "+l.name, func(ctx context.Context) error { return b.spread(ctx, l) })
	}
	loops.Go("notify", b.notify)
	loops.Go("listen", b.listen)
}

// spread wakes at once here, and lets somebody else tell the others: the database may be slow.
func (b *Bell) spread(ctx context.Context, l *line) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.rung:
			l.local.Wake()
			l.due.Store(true)
			b.remote.Wake()
		}
	}
}

// notify tells the other nodes. What is rung while it does so, or rests, is one more word, however often it was.
func (b *Bell) notify(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-b.remote:
		}
		if b.alone.Load() {
			continue
		}
		if err := b.notifyOnce(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("other nodes not woken, they look by themselves in a moment", "err", err)
		}
		if !service.Sleep(ctx, rest) {
			return context.Cause(ctx)
		}
	}
}

func (b *Bell) notifyOnce(ctx context.Context) error {
	var rung []string
	for _, l := range b.lines {
		if l.due.Swap(false) {
			rung = append(rung, l.name)
		}
	}
	if len(rung) == 0 {
		return nil // all of it went with the word before
	}
	return b.say(ctx, rung...)
}

// say tells the other nodes that this one is there, and which lines it rings.
func (b *Bell) say(ctx context.Context, rung ...string) error {
	ctx, cancel := context.WithTimeout(ctx, databaseTime)
	defer cancel()
	_, err := b.db.Read().ExecContext(ctx, "SELECT pg_notify($1, $2)", channel, strings.Join(append([]string{b.node}, rung...), " "))
	return err
}

// listen hears the other nodes, on a connection of its own, until that is lost. Its caller starts it again.
func (b *Bell) listen(ctx context.Context) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTime)
		defer cancel()
		_ = conn.Close(ctx) // it is given up either way
	}()
	for _, l := range b.lines {
		l.local.Wake() // nobody heard what was rung before
	}
	if err := b.say(ctx); err != nil {
		return fmt.Errorf("tell other nodes of this one: %w", err)
	}
	for {
		if err := b.hear(ctx, conn); err != nil {
			return err
		}
	}
}

func (b *Bell) connect(ctx context.Context) (*pgx.Conn, error) {
	pool, err := pgxpool.ParseConfig(b.url) // the URL is that of a pool, whose settings are nothing to the database
	if err != nil {
		return nil, errors.New("listen to other nodes: the database URL cannot be read") // its error may repeat the password
	}
	config := pool.ConnConfig
	config.RuntimeParams["application_name"] = "kici-listen"
	ctx, cancel := context.WithTimeout(ctx, databaseTime)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("listen to other nodes: %w", err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return nil, errors.Join(fmt.Errorf("listen to other nodes: %w", err), conn.Close(ctx))
	}
	return conn, nil
}

// hear waits for one wake-up. After a long silence it makes sure that the connection is not dead.
func (b *Bell) hear(ctx context.Context, conn *pgx.Conn) error {
	limited, cancel := context.WithTimeout(ctx, listenCheck)
	defer cancel()
	heard, err := conn.WaitForNotification(limited)
	if err == nil {
		b.wake(heard.Payload)
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if limited.Err() == nil {
		return fmt.Errorf("listen to other nodes: %w", err)
	}
	checking, cancel := context.WithTimeout(ctx, databaseTime)
	defer cancel()
	if err := conn.Ping(checking); err != nil {
		return fmt.Errorf("listen to other nodes: %w", err)
	}
	return nil
}

// wake passes on what another node rang. A node has heard itself already.
func (b *Bell) wake(word string) {
	said := strings.Fields(word)
	if len(said) == 0 || said[0] == b.node {
		return
	}
	b.alone.Store(false)
	for _, l := range b.lines {
		if slices.Contains(said[1:], l.name) {
			l.local.Wake()
		}
	}
}
