package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
)

// maxStatements bounds the prepared statements of one cache. Beyond it all are closed and prepared again as they come:
// the program has far fewer texts, so only made-up ones get there.
const maxStatements = 512

func connectSQLite(o Options) (*DB, error) {
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	sync := "NORMAL"
	if o.Durable {
		sync = "FULL"
	}
	dsn := "file:" + escapePath(path) + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)" +
		"&_pragma=synchronous(" + sync + ")&_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)"
	single, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	single.SetMaxOpenConns(1)
	conn, err := single.Conn(context.Background())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), single.Close())
	}
	readers, err := sql.Open("sqlite", dsn+"&_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), conn.Close(), single.Close())
	}
	readers.SetMaxOpenConns(4)
	readers.SetMaxIdleConns(2)
	w := &singleWriter{turn: make(chan struct{}, 1), conn: conn, prepared: newPrepared(conn)}
	return &DB{Dialect: SQLite, writer: w, reader: newPrepared(readers), pools: []*sql.DB{readers, single}}, nil
}

// escapePath keeps the characters that would end a path in a file: URI from doing so.
func escapePath(p string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(p)
}

// singleWriter runs transactions one after the other on one connection. It begins and commits by statements of its own
// instead of sql.Tx, which prepares every statement anew: that is a fifth of the cost of a short transaction.
type singleWriter struct {
	turn     chan struct{} // whose turn it is: size one
	conn     *sql.Conn
	prepared *prepared
}

// write waits for its turn. Once it has begun, the transaction is not interrupted when ctx ends: it is short, and the
// driver would need a goroutine beside every statement to watch for it.
func (w *singleWriter) write(ctx context.Context, fn func(ctx context.Context, q Querier) error) (err error) {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case w.turn <- struct{}{}:
	}
	defer func() { <-w.turn }()
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if _, err := w.prepared.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	committed := false
	defer func() { // also when fn panics
		if committed {
			return
		}
		if _, undo := w.prepared.ExecContext(ctx, "ROLLBACK"); undo != nil && !endedItself(undo) {
			err = errors.Join(err, fmt.Errorf("roll back: %w", undo))
		}
	}()
	if err := fn(ctx, w.prepared); err != nil {
		return err
	}
	if _, err := w.prepared.ExecContext(ctx, "COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

// endedItself tells that SQLite had rolled back already, as it does on a full disk.
func endedItself(err error) bool { return strings.Contains(err.Error(), "no transaction is active") }

func (w *singleWriter) close() error {
	return errors.Join(w.prepared.close(), w.conn.Close())
}

// preparer is a pool or one connection.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// prepared runs statements that it prepares once.
type prepared struct {
	on         preparer
	mu         sync.Mutex
	statements map[string]*sql.Stmt
}

func newPrepared(on preparer) *prepared {
	return &prepared{on: on, statements: map[string]*sql.Stmt{}}
}

func (p *prepared) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.statements[query]; ok {
		return s, nil
	}
	s, err := p.on.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if len(p.statements) >= maxStatements {
		for text, old := range p.statements {
			_ = old.Close() // one in use is closed when its rows are
			delete(p.statements, text)
		}
	}
	p.statements[query] = s
	return s, nil
}

// ExecContext is Querier's.
func (p *prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s, err := p.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, args...)
}

// QueryContext is Querier's.
func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := p.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

// QueryRowContext is Querier's. A statement that cannot be prepared fails again in Scan, with the same error.
func (p *prepared) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s, err := p.statement(ctx, query)
	if err != nil {
		return p.on.QueryRowContext(ctx, query, args...) // only the library can make a row that holds an error
	}
	return s.QueryRowContext(ctx, args...)
}

func (p *prepared) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, s := range p.statements {
		err = errors.Join(err, s.Close())
	}
	p.statements = map[string]*sql.Stmt{}
	return err
}
