package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"kici/internal/server/store/walfile"
)

// maxStatements bounds the prepared statements of one cache. Beyond it all are closed and prepared again as they come:
// the program has far fewer texts, so only made-up ones get there.
const maxStatements = 512

// checkpointPages is how many pages the log of the database holds before they go to its file, 16 MiB: a page that is written
// a hundred times goes there once, and the disk is waited for less often.
const checkpointPages = 4000

// maxReaders bounds the connections that read beside the writer.
const maxReaders = 4

func connectSQLite(o Options) (*DB, error) {
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	vfs, err := walfile.VFS()
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	sync := "NORMAL"
	if o.Durable {
		sync = "FULL"
	}
	dsn := "file:" + escapePath(path) + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)" +
		"&_pragma=synchronous(" + sync + ")&_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)" +
		"&_pragma=cache_size(-8192)&_pragma=wal_autocheckpoint(" + strconv.Itoa(checkpointPages) + ")&vfs=" + vfs
	single, err := openLite(dsn)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	readers, err := sql.Open("sqlite", dsn+"&_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), single.close())
	}
	readers.SetMaxOpenConns(maxReaders)
	readers.SetMaxIdleConns(maxReaders) // a connection that is opened again prepares all its statements again
	return &DB{Dialect: SQLite, writer: &singleWriter{on: single}, reader: newPrepared(readers), pools: []io.Closer{readers}}, nil
}

// escapePath keeps the characters that would end a path in a file: URI from doing so.
func escapePath(p string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(p)
}

// prepared runs statements that it prepares once.
type prepared struct {
	on         *sql.DB
	mu         sync.Mutex
	statements map[string]*sql.Stmt
}

func newPrepared(on *sql.DB) *prepared {
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
func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (Rows, error) {
	s, err := p.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

// QueryRowContext is Querier's. A statement that cannot be prepared fails again in Scan, with the same error.
func (p *prepared) QueryRowContext(ctx context.Context, query string, args ...any) Row {
	s, err := p.statement(ctx, query)
	if err != nil {
		return p.on.QueryRowContext(ctx, query, args...) // only the library can make a row that holds an error
	}
	return s.QueryRowContext(ctx, args...)
}

// All is Querier's.
func (p *prepared) All(ctx context.Context, asks ...Ask) error {
	for _, ask := range asks {
		if ask.idle() {
			continue
		}
		rows, err := p.QueryContext(ctx, ask.Query, ask.Args...)
		if err != nil {
			return err
		}
		if err := errors.Join(each(rows, ask), rows.Close()); err != nil {
			return err
		}
	}
	return nil
}
