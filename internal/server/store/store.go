// Package store opens the one truth: an embedded SQLite file or a PostgreSQL database, with the same SQL on both. It
// holds the schema of every room; each table is written by the room that its comment in the migrations names.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

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
	// QueryContext gives rows that are read to their end, or closed, before the next statement. An error of the query may
	// come from Err of the rows alone.
	QueryContext(ctx context.Context, query string, args ...any) (Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) Row
	// All runs queries one after the other, with one message there and back, and none for no query. The error of one ends it.
	All(ctx context.Context, asks ...Ask) error
}

// Ask is a query among others, and who takes its rows.
type Ask struct {
	Query string
	Args  []any
	Row   func(Row) error // called for each row; its error ends all
	// Idle tells, by the answers to what was asked before, that there is no use for the rows: none is given then, and SQLite, which
	// answers one after the other, is not even asked. Nil: there is.
	Idle func() bool
}

func (a Ask) idle() bool { return a.Idle != nil && a.Idle() }

// each gives the rows of a query to who asked.
func each(rows interface {
	Row
	Next() bool
	Err() error
}, ask Ask) error {
	for rows.Next() {
		if err := ask.Row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Row is what Scan reads the columns of; sql.ErrNoRows says that there is none.
type Row interface {
	Scan(dest ...any) error
}

// Rows are the rows of a query, read one after the other as those of database/sql.
type Rows interface {
	Row
	Next() bool
	Err() error
	Close() error
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
	pools   []io.Closer // to close after the writer
}

// transaction is one that is open.
type transaction interface {
	Querier
	// Do runs a statement of which only a failure matters. PostgreSQL gets it together with the next one that is waited
	// for, so what it changes is seen by all that follows, but its error may come from one of those, or from the commit.
	// The arguments must not change until then.
	Do(ctx context.Context, query string, args ...any) error
	// DoOne is Do for a statement that must change a row. Where it does not, the transaction fails with otherwise. The
	// statement has no RETURNING, and no clause WITH that changes something.
	DoOne(ctx context.Context, otherwise error, query string, args ...any) error
	// Last is All with which the transaction may be committed: nothing may follow, and an error of an Ask's Row comes too
	// late to undo anything.
	Last(ctx context.Context, asks ...Ask) error
}

// ErrUnchanged is for DoOne: the row is gone, or no longer in the state that the statement asks for.
var ErrUnchanged = errors.New("the row changed meanwhile")

// writer runs one transaction: it begins, calls fn, and commits when fn gives nil.
type writer interface {
	write(ctx context.Context, fn func(ctx context.Context, q transaction) error) error
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
	transaction
	Dialect Dialect
	after   []func()
}

// After registers what to do once the transaction has committed, such as waking a loop. It does not run when the
// transaction rolls back.
func (tx *Tx) After(do func()) { tx.after = append(tx.after, do) }

// Write runs fn in one transaction, commits when it returns nil and rolls back otherwise.
func (db *DB) Write(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	tx := &Tx{Dialect: db.Dialect}
	err := db.writer.write(ctx, func(ctx context.Context, within transaction) error {
		tx.transaction = within
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

// PlanAnew has PostgreSQL plan the statements that follow in this transaction on the rows that there are now. The plan
// of a prepared statement is kept for the life of its connection, and one that was made while a table was small reads the
// whole of it when it has grown. SQLite plans by index and needs none of that.
func (tx *Tx) PlanAnew(ctx context.Context) error {
	if tx.Dialect != Postgres {
		return nil
	}
	return tx.Do(ctx, "SET LOCAL plan_cache_mode = force_custom_plan")
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
