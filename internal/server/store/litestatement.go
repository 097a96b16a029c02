package store

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// maxKept bounds the memory for texts that a statement keeps after it has run.
const maxKept = 64 << 10

// liteStatement is a prepared statement.
type liteStatement struct {
	on     *lite
	handle uintptr   // 0 for a comment
	places []int     // which argument each parameter takes, from 0 on
	texts  uintptr   // memory for the texts among the arguments, where the engine finds them while the statement runs
	room   int       // bytes there
	rows   *liteRows // those that it gives, until they have been read
}

func newLiteStatement(c *lite, handle uintptr) *liteStatement {
	s := &liteStatement{on: c, handle: handle}
	for i := range sqlite3.Xsqlite3_bind_parameter_count(c.tls, handle) {
		name := libc.GoString(sqlite3.Xsqlite3_bind_parameter_name(c.tls, handle, i+1))
		number, err := strconv.Atoi(name[min(1, len(name)):]) // $1
		if err != nil {
			number = int(i) + 1 // ?
		}
		s.places = append(s.places, number-1)
	}
	return s
}

// exec runs a statement to its end.
func (s *liteStatement) exec(args []any) (changes, error) {
	defer s.reset()
	if err := s.bind(args); err != nil {
		return 0, err
	}
	for {
		if another, err := s.step(); err != nil || !another {
			return changes(sqlite3.Xsqlite3_changes64(s.on.tls, s.on.db)), err
		}
	}
}

// query runs a statement up to its first row.
func (s *liteStatement) query(args []any) (*liteRows, error) {
	if err := s.bind(args); err != nil {
		s.reset()
		return nil, err
	}
	r := &liteRows{of: s}
	s.rows = r
	if r.waiting = r.advance(); r.err != nil {
		return nil, r.err
	}
	return r, nil
}

// step tells whether there is another row.
func (s *liteStatement) step() (bool, error) {
	if s.handle == 0 {
		return false, nil
	}
	switch rc := sqlite3.Xsqlite3_step(s.on.tls, s.handle); rc {
	case sqlite3.SQLITE_ROW:
		return true, nil
	case sqlite3.SQLITE_DONE:
		return false, nil
	default:
		return false, s.on.failure(rc)
	}
}

// reset ends what runs. Its result is the one of the last step, which is known.
func (s *liteStatement) reset() {
	sqlite3.Xsqlite3_reset(s.on.tls, s.handle)
	s.rows = nil
	if s.room > maxKept {
		sqlite3.Xsqlite3_clear_bindings(s.on.tls, s.handle)
		s.on.free(s.texts)
		s.texts, s.room = 0, 0
	}
}

func (s *liteStatement) close() {
	sqlite3.Xsqlite3_finalize(s.on.tls, s.handle)
	s.on.free(s.texts)
	s.rows = nil
}

var errRanAgain = errors.New("the statement ran again before its rows had been read")

// bind gives a statement its arguments.
func (s *liteStatement) bind(args []any) error {
	if s.rows != nil { // somebody still reads them, or has panicked
		s.rows.err = errRanAgain
		s.reset()
	}
	values, size := s.on.values[:0], 0
	defer func() {
		clear(values)
		s.on.values = values
	}()
	for _, place := range s.places {
		if place >= len(args) {
			return fmt.Errorf("there is no argument $%d", place+1)
		}
		value, err := plain(args[place])
		if err != nil {
			return fmt.Errorf("argument $%d: %w", place+1, err)
		}
		switch v := value.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		}
		values = append(values, value)
	}
	if err := s.grow(size); err != nil {
		return err
	}
	at := s.texts
	for i, value := range values {
		rc, n := s.bindOne(int32(i+1), value, at)
		if rc != sqlite3.SQLITE_OK {
			return s.on.failure(rc)
		}
		at += uintptr(n)
	}
	return nil
}

// grow makes room for the texts of the arguments. The place of an empty one must be there too: it would be NULL.
func (s *liteStatement) grow(size int) (err error) {
	if size <= s.room && s.texts != 0 {
		return nil
	}
	s.on.free(s.texts)
	s.room = max(size, 2*s.room, 64)
	if s.texts, err = s.on.allocate(s.room); err != nil {
		s.room = 0
	}
	return err
}

// bindOne gives a statement an argument, and tells how much memory for texts that has taken.
func (s *liteStatement) bindOne(i int32, value any, at uintptr) (rc int32, n int) {
	tls, handle := s.on.tls, s.handle
	switch v := value.(type) {
	case nil:
		return sqlite3.Xsqlite3_bind_null(tls, handle, i), 0
	case int64:
		return sqlite3.Xsqlite3_bind_int64(tls, handle, i, v), 0
	case bool:
		truth := int32(0)
		if v {
			truth = 1
		}
		return sqlite3.Xsqlite3_bind_int(tls, handle, i, truth), 0
	case float64:
		return sqlite3.Xsqlite3_bind_double(tls, handle, i, v), 0
	case string:
		n = copy(memory(at, len(v)), v)
		return sqlite3.Xsqlite3_bind_text(tls, handle, i, at, int32(n), sqlite3.SQLITE_STATIC), n
	case []byte:
		n = copy(memory(at, len(v)), v)
		return sqlite3.Xsqlite3_bind_blob(tls, handle, i, at, int32(n), sqlite3.SQLITE_STATIC), n
	}
	return sqlite3.SQLITE_MISMATCH, 0
}

// plain gives an argument as one of the types that bindOne knows, by the rules of database/sql.
func plain(arg any) (any, error) {
	switch v := arg.(type) {
	case nil, int64, bool, string, float64:
		return arg, nil
	case int:
		return int64(v), nil
	case []byte:
		if v == nil {
			return nil, nil
		}
		return arg, nil
	}
	value, err := driver.DefaultParameterConverter.ConvertValue(arg)
	if err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case nil, int64, bool, string, float64:
		return value, nil
	case []byte:
		return plain(v)
	}
	return nil, fmt.Errorf("a %T cannot be stored", value)
}

// liteRows are the rows of a statement, as long as it does not run again.
type liteRows struct {
	of      *liteStatement
	waiting bool // the first has not been asked for
	err     error
}

// Next is Rows'.
func (r *liteRows) Next() bool {
	if r.waiting {
		r.waiting = false
		return r.open()
	}
	return r.advance()
}

func (r *liteRows) advance() (another bool) {
	if !r.open() {
		return false
	}
	if another, r.err = r.of.step(); !another {
		r.of.reset()
	}
	return another
}

// open tells whether there may be more rows.
func (r *liteRows) open() bool { return r.of.rows == r }

// Err is Rows'.
func (r *liteRows) Err() error { return r.err }

// Close is Rows'. Closed twice does no harm.
func (r *liteRows) Close() error {
	if r.open() {
		r.of.reset()
	}
	return nil
}

// Scan is Row's.
func (r *liteRows) Scan(dest ...any) error {
	if !r.open() {
		return errors.New("there is no row to scan")
	}
	s := r.of
	if n := int(sqlite3.Xsqlite3_data_count(s.on.tls, s.handle)); n != len(dest) {
		return fmt.Errorf("%d columns are scanned into %d places", n, len(dest))
	}
	for i, to := range dest {
		if err := s.read(int32(i), to); err != nil {
			name := libc.GoString(sqlite3.Xsqlite3_column_name(s.on.tls, s.handle, int32(i)))
			return fmt.Errorf("scan column %d, %q: %w", i, name, err)
		}
	}
	return nil
}

// read copies a column of the row. The types that most have need no detour over a value of any type.
func (s *liteStatement) read(i int32, to any) error {
	kind := sqlite3.Xsqlite3_column_type(s.on.tls, s.handle, i)
	switch to := to.(type) {
	case *string:
		if kind == sqlite3.SQLITE_TEXT {
			*to = s.string(i)
			return nil
		}
	case *int64:
		if kind == sqlite3.SQLITE_INTEGER {
			*to = sqlite3.Xsqlite3_column_int64(s.on.tls, s.handle, i)
			return nil
		}
	case *int:
		if kind == sqlite3.SQLITE_INTEGER {
			*to = int(sqlite3.Xsqlite3_column_int64(s.on.tls, s.handle, i))
			return nil
		}
	case *bool:
		if kind == sqlite3.SQLITE_INTEGER {
			if n := sqlite3.Xsqlite3_column_int64(s.on.tls, s.handle, i); n == 0 || n == 1 {
				*to = n == 1
				return nil
			}
		}
	}
	return assign(to, s.value(i, kind))
}

func (s *liteStatement) value(i, kind int32) any {
	switch kind {
	case sqlite3.SQLITE_INTEGER:
		return sqlite3.Xsqlite3_column_int64(s.on.tls, s.handle, i)
	case sqlite3.SQLITE_FLOAT:
		return sqlite3.Xsqlite3_column_double(s.on.tls, s.handle, i)
	case sqlite3.SQLITE_TEXT:
		return s.string(i)
	case sqlite3.SQLITE_BLOB:
		return s.bytes(i)
	}
	return nil
}

func (s *liteStatement) string(i int32) string {
	b := s.bytes(i)
	return unsafe.String(unsafe.SliceData(b), len(b)) // nobody else has the bytes
}

// bytes copies a text or a blob.
func (s *liteStatement) bytes(i int32) []byte {
	at := sqlite3.Xsqlite3_column_blob(s.on.tls, s.handle, i)
	n := int(sqlite3.Xsqlite3_column_bytes(s.on.tls, s.handle, i))
	b := make([]byte, n)
	copy(b, memory(at, n))
	return b
}
