package store

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	sqlite3 "modernc.org/sqlite/lib"
)

// IsUnique tells whether an error says that a row with that key exists already.
func IsUnique(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == "23505" // unique_violation
	}
	if lite, ok := errors.AsType[engineError](err); ok {
		return lite.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || lite.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
	}
	return false
}

// IsFull tells whether an error says that the disk or the database has no room left.
func IsFull(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == "53100" // disk_full
	}
	if lite, ok := errors.AsType[engineError](err); ok {
		return lite.Code() == sqlite3.SQLITE_FULL || lite.Code()&0xff == sqlite3.SQLITE_FULL
	}
	return false
}

// IsRefused tells whether an error says that the database will never take these values: they break a constraint, a type or
// a limit. The same statement fails again whenever it is tried.
func IsRefused(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch class(pg) {
		case "21", "22", "23", "54": // cardinality, data, integrity, a limit of the program
			return true
		}
		return false
	}
	if lite, ok := errors.AsType[engineError](err); ok {
		switch lite.Code() & 0xff {
		case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
			return true
		}
	}
	return false
}

// IsUnavailable tells whether an error says that the database cannot be used now, whatever it is asked, or that the
// connection ended before it answered.
func IsUnavailable(err error) bool {
	if isDisconnected(err) {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch class(pg) {
		case "08", "25", "28", "40", "53", "55", "57", "58", "XX": // connection, transaction, login, conflict, resources, the system
			return true
		}
		return false
	}
	if lite, ok := errors.AsType[engineError](err); ok {
		return !IsRefused(err) && lite.Code()&0xff != sqlite3.SQLITE_ERROR // busy, locked, disk, memory
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// isDisconnected tells that PostgreSQL could not be reached, or the connection to it ended. What pgconn calls safe to retry
// never left this process: the connection had ended before.
func isDisconnected(err error) bool {
	if _, connecting := errors.AsType[*pgconn.ConnectError](err); connecting { // also when the server itself says no
		return true
	}
	_, network := errors.AsType[net.Error](err)
	network = network || errors.Is(err, pgconn.ErrConnClosed) // all that the driver tells where a statement has no arguments
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}

// IsDeadlock tells whether an error says that transactions waited for each other, and that this one was given up for the
// others: nothing of it is stored, and it may be run again.
func IsDeadlock(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40P01" || pg.Code == "40001") // deadlock_detected, serialization_failure
}

// class is the first part of the code of an error (PostgreSQL, appendix A).
func class(pg *pgconn.PgError) string { return pg.Code[:min(2, len(pg.Code))] }

// engineError is an error of SQLite: of the writer, or of the driver that the readers use.
type engineError interface {
	error
	Code() int // the extended result code
}
