package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// lite is a connection to SQLite for one goroutine at a time. Most statements take the engine a few microseconds; under
// database/sql as much again goes to locks that nobody else wants, to values that are packed twice, and to the names of
// parameters and columns.
type lite struct {
	tls        *libc.TLS
	db         uintptr
	statements map[string]*liteStatement
	values     []any // of a statement, while it is bound
}

// openLite opens a connection as the driver of database/sql does with the same name.
func openLite(name string) (*lite, error) {
	c := &lite{tls: libc.NewTLS(), statements: map[string]*liteStatement{}}
	if err := c.open(name); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *lite) open(name string) error {
	at, err := c.text(name)
	if err != nil {
		return err
	}
	defer c.free(at)
	out, err := c.allocate(int(pointers))
	if err != nil {
		return err
	}
	defer c.free(out)
	const how = sqlite3.SQLITE_OPEN_READWRITE | sqlite3.SQLITE_OPEN_CREATE | sqlite3.SQLITE_OPEN_URI | sqlite3.SQLITE_OPEN_NOMUTEX
	rc := sqlite3.Xsqlite3_open_v2(c.tls, at, out, how, 0)
	c.db = pointer(out, 0)
	if rc != sqlite3.SQLITE_OK {
		return c.failure(rc)
	}
	sqlite3.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	return c.set(name)
}

// set makes the settings that the name of a database has.
func (c *lite) set(name string) error {
	_, query, _ := strings.Cut(name, "?")
	settings, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	for _, pragma := range settings["_pragma"] {
		if err := c.Do(context.Background(), "PRAGMA "+pragma); err != nil {
			return err
		}
	}
	return nil
}

// Do is transaction's. There is nothing to save by waiting: the engine is in this process.
func (c *lite) Do(_ context.Context, query string, args ...any) error {
	_, err := c.exec(query, args)
	return err
}

// DoOne is transaction's.
func (c *lite) DoOne(_ context.Context, otherwise error, query string, args ...any) error {
	n, err := c.exec(query, args)
	if err == nil && n == 0 {
		err = otherwise
	}
	return err
}

// ExecContext is Querier's.
func (c *lite) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	return c.exec(query, args)
}

// QueryContext is Querier's.
func (c *lite) QueryContext(_ context.Context, query string, args ...any) (Rows, error) {
	rows, err := c.query(query, args)
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// QueryRowContext is Querier's.
func (c *lite) QueryRowContext(_ context.Context, query string, args ...any) Row {
	rows, err := c.query(query, args)
	return onlyRow{rows, err}
}

// All is Querier's.
func (c *lite) All(_ context.Context, asks ...Ask) error {
	for _, ask := range asks {
		if ask.idle() {
			continue
		}
		if err := c.ask(ask); err != nil {
			return err
		}
	}
	return nil
}

func (c *lite) ask(ask Ask) error {
	rows, err := c.query(ask.Query, ask.Args)
	if err != nil {
		return err
	}
	defer rows.Close() // for who panics with a row
	return each(rows, ask)
}

// Last is transaction's. The commit follows anyway.
func (c *lite) Last(ctx context.Context, asks ...Ask) error { return c.All(ctx, asks...) }

// exec runs the statements of a text, and tells how many rows the last one has changed.
func (c *lite) exec(query string, args []any) (changes, error) {
	for {
		s, rest, err := c.statement(query)
		if err != nil {
			return 0, err
		}
		n, err := s.exec(args)
		if rest == "" {
			return n, err
		}
		s.close()
		if err != nil {
			return 0, err
		}
		query = rest
	}
}

func (c *lite) query(query string, args []any) (*liteRows, error) {
	s, rest, err := c.statement(query)
	if err != nil {
		return nil, err
	}
	if rest != "" {
		s.close()
		return nil, fmt.Errorf("%.80q: rows of several statements", query)
	}
	return s.query(args)
}

// changes are how many rows a statement has changed.
type changes int64

// LastInsertId is sql.Result's. The tables have ids of ours.
func (changes) LastInsertId() (int64, error) { return 0, errors.ErrUnsupported }

// RowsAffected is sql.Result's.
func (n changes) RowsAffected() (int64, error) { return int64(n), nil }

// statement gives the first statement of a text, and what follows it. One that others follow is not kept: its caller closes
// it.
func (c *lite) statement(query string) (s *liteStatement, rest string, err error) {
	if s, ok := c.statements[query]; ok {
		return s, "", nil
	}
	s, rest, err = c.prepare(query)
	if err != nil || rest != "" {
		return s, rest, err
	}
	if len(c.statements) >= maxStatements {
		c.forget()
	}
	c.statements[query] = s
	return s, "", nil
}

func (c *lite) prepare(query string) (s *liteStatement, rest string, err error) {
	if c.db == 0 {
		return nil, "", sql.ErrConnDone
	}
	at, err := c.text(query)
	if err != nil {
		return nil, "", err
	}
	defer c.free(at)
	out, err := c.allocate(int(pointers))
	if err != nil {
		return nil, "", err
	}
	defer c.free(out)
	if rc := sqlite3.Xsqlite3_prepare_v3(c.tls, c.db, at, int32(len(query)), sqlite3.SQLITE_PREPARE_PERSISTENT, out, out+pointers/2); rc != sqlite3.SQLITE_OK {
		return nil, "", c.failure(rc)
	}
	return newLiteStatement(c, pointer(out, 0)), strings.TrimLeft(query[pointer(out, 1)-at:], " \t\r\n"), nil
}

// forget ends all statements but those whose rows are being read.
func (c *lite) forget() {
	for text, s := range c.statements {
		if s.rows == nil {
			s.close()
			delete(c.statements, text)
		}
	}
}

func (c *lite) close() error {
	for _, s := range c.statements {
		s.close()
	}
	clear(c.statements)
	db := c.db
	c.db = 0
	defer c.tls.Close()
	if rc := sqlite3.Xsqlite3_close_v2(c.tls, db); rc != sqlite3.SQLITE_OK {
		return c.failure(rc)
	}
	return nil
}

// liteError is an error of the engine.
type liteError struct {
	code int
	text string
}

// Error is error's.
func (e *liteError) Error() string { return e.text }

// Code is the extended result code (https://www.sqlite.org/rescode.html).
func (e *liteError) Code() int { return e.code }

// failure is the error of the last call.
func (c *lite) failure(rc int32) error {
	text := libc.GoString(sqlite3.Xsqlite3_errstr(c.tls, rc))
	if c.db != 0 {
		if more := libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db)); more != text {
			text += ": " + more
		}
	}
	return &liteError{int(rc), fmt.Sprintf("%s (%d)", text, rc)}
}

// pointers is the size of two.
const pointers = 2 * unsafe.Sizeof(uintptr(0))

// pointer reads the one of two that the engine has written.
func pointer(at uintptr, i int) uintptr {
	return (*(**[2]uintptr)(unsafe.Pointer(&at)))[i]
}

// memory gives bytes of the engine, of which the collector knows nothing.
func memory(at uintptr, n int) []byte { return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n) }

// text copies a text to where the engine can read it. Its caller frees it.
func (c *lite) text(s string) (uintptr, error) {
	at, err := c.allocate(len(s) + 1)
	if err == nil {
		b := memory(at, len(s)+1)
		b[copy(b, s)] = 0
	}
	return at, err
}

// allocate takes memory that the collector does not move. Its caller frees it.
func (c *lite) allocate(n int) (uintptr, error) {
	at := libc.Xmalloc(c.tls, libc.Tsize_t(n))
	if at == 0 {
		return 0, &liteError{sqlite3.SQLITE_NOMEM, fmt.Sprintf("out of memory (%d)", sqlite3.SQLITE_NOMEM)}
	}
	return at, nil
}

func (c *lite) free(at uintptr) { libc.Xfree(c.tls, at) }
