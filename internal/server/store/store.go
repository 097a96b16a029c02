// Package store opens the one truth: an embedded SQLite file or a PostgreSQL database, with the same SQL on both. It
// holds the schema of every room; each table is written by the room that its comment in the migrations names.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // driver "sqlite"
)

// Dialect tells the engine, for the few statements that differ.
type Dialect int

// The engines.
const (
	SQLite Dialect = iota
	Postgres
)

// Querier runs statements: a transaction, or the database for reads that need no transaction.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Texts reads the rows of a query that gives one text each.
func Texts(ctx context.Context, q Querier, query string, args ...any) ([]string, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, rows.Err()
}

// DB is an open, migrated database. On SQLite all writes go through one connection, so a writer never meets another.
type DB struct {
	Dialect Dialect
	writer  writer
	reader  Querier
	pools   []*sql.DB // to close
}

// writer runs one transaction: it begins, calls fn, and commits when fn gives nil.
type writer interface {
	write(ctx context.Context, fn func(ctx context.Context, q Querier) error) error
	close() error
}

// Options say where the database is. An empty URL is the SQLite file Path.
type Options struct {
	URL  string // postgres://…
	Path string
	// Durable makes SQLite wait for the disk at every commit. Without it a killed process loses nothing, but a machine
	// that loses power may lose the last commits (never the consistency of the file).
	Durable bool
}

// ErrNewerSchema says that the database was written by a newer release than this binary.
var ErrNewerSchema = errors.New("the database has a newer schema than this release knows; start a release at least as new as the one that wrote it")

// Open opens the database and brings its schema up to date.
func Open(ctx context.Context, o Options) (*DB, error) {
	db, err := connect(o)
	if err != nil {
		return nil, err
	}
	if err := db.migrate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("migrate database: %w", err), db.Close())
	}
	return db, nil
}

func connect(o Options) (*DB, error) {
	if o.URL != "" {
		return connectPostgres(o.URL)
	}
	return connectSQLite(o)
}

// idleTransaction is how long PostgreSQL lets a transaction wait for its client, in milliseconds. No transaction of ours
// waits for anything but the database, so one that does belongs to a process that is suspended, and its locks would keep
// the others from taking over what it had.
const idleTransaction = "5000"

func connectPostgres(url string) (*DB, error) {
	if !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://") {
		return nil, errors.New("open database: the URL must start with postgres:// (leave it empty for the embedded database)")
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("open database: the URL is not a PostgreSQL connection URL") // its error would repeat the password
	}
	if config.RuntimeParams["idle_in_transaction_session_timeout"] == "" {
		config.RuntimeParams["idle_in_transaction_session_timeout"] = idleTransaction
	}
	pool := stdlib.OpenDB(*config)
	pool.SetMaxOpenConns(16)
	pool.SetMaxIdleConns(8)
	return &DB{Dialect: Postgres, writer: poolWriter{pool}, reader: pool, pools: []*sql.DB{pool}}, nil
}

// Close closes every connection.
func (db *DB) Close() error {
	err := db.writer.close()
	for _, pool := range db.pools {
		err = errors.Join(err, pool.Close())
	}
	return err
}

// Read is for statements that change nothing and need no transaction. It sees every transaction committed before.
func (db *DB) Read() Querier { return db.reader }

// Ping tells whether the database answers.
func (db *DB) Ping(ctx context.Context) error {
	var one int
	return db.reader.QueryRowContext(ctx, "SELECT 1").Scan(&one)
}

// Tx is one transaction. Functions that take a *Tx never touch the pool: on SQLite the single writer would wait for
// itself. The rows of a query are read to their end, or closed, before the same statement runs again.
type Tx struct {
	Querier
	Dialect Dialect
	after   []func()
}

// After registers what to do once the transaction has committed, such as waking a loop. It does not run when the
// transaction rolls back.
func (tx *Tx) After(do func()) { tx.after = append(tx.after, do) }

// Write runs fn in one transaction, commits when it returns nil and rolls back otherwise.
func (db *DB) Write(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	tx := &Tx{Dialect: db.Dialect}
	err := db.writer.write(ctx, func(ctx context.Context, q Querier) error {
		tx.Querier = q
		return fn(ctx, tx)
	})
	if err != nil {
		return err
	}
	for _, do := range tx.after {
		do()
	}
	return nil
}

// poolWriter takes any connection of a pool.
type poolWriter struct{ pool *sql.DB }

func (w poolWriter) write(ctx context.Context, fn func(ctx context.Context, q Querier) error) error {
	tx, err := w.pool.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit this is a no-op; it also covers a panic in fn
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// close does nothing: the pool is closed by its owner.
func (poolWriter) close() error { return nil }

// PlanAnew has PostgreSQL plan the statements that follow in this transaction on the rows that there are now. The plan
// of a prepared statement is kept for the life of its connection, and one that was made while a table was small reads the
// whole of it when it has grown. SQLite plans by index and needs none of that.
func (tx *Tx) PlanAnew(ctx context.Context) error {
	if tx.Dialect != Postgres {
		return nil
	}
	_, err := tx.ExecContext(ctx, "SET LOCAL plan_cache_mode = force_custom_plan")
	return err
}

// ForUpdate is the clause that locks the selected row until the transaction ends. SQLite's single writer needs none.
func (tx *Tx) ForUpdate() string {
	if tx.Dialect == Postgres {
		return " FOR UPDATE"
	}
	return ""
}

// Changed reports whether a statement changed exactly the row it was meant for (or any row). Callers of conditional
// updates must look at it: follow-up effects belong to the one who changed the row.
func Changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}
