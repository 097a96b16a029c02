package store

import "time"

// WaitForConnections sets how long who finds the usual connections in use waits for one of them.
func (db *DB) WaitForConnections(wait time.Duration) { db.writer.(*postgres).seats.wait = wait }

// Connections tells how many connections to PostgreSQL there are.
func (db *DB) Connections() int { return int(db.writer.(*postgres).pool.Stat().TotalConns()) }
