package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed migrations/*.sql
var migrations embed.FS

const createMigrations = `CREATE TABLE IF NOT EXISTS schema_migrations (version BIGINT PRIMARY KEY, name TEXT NOT NULL)`

// migrationLock is the advisory lock under which PostgreSQL servers that start together migrate one after the other.
const migrationLock = 0x6b696369 // "kici"

// migrate applies the numbered migrations that the database has not seen, each in a transaction of its own.
func (db *DB) migrate(ctx context.Context) error {
	names, err := fs.Glob(migrations, "migrations/*.sql") // sorted by name, so by number
	if err != nil {
		return err
	}
	if err := db.refuseNewer(ctx, len(names)); err != nil {
		return err
	}
	for i, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return err
		}
		if err := db.applyMigration(ctx, i+1, name, string(text)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (db *DB) refuseNewer(ctx context.Context, known int) error {
	var newest sql.NullInt64
	err := db.Write(ctx, func(ctx context.Context, tx *Tx) error {
		if err := lockMigrations(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, createMigrations); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT max(version) FROM schema_migrations").Scan(&newest)
	})
	if err != nil {
		return err
	}
	if newest.Int64 > int64(known) {
		return fmt.Errorf("schema %d, this release knows %d: %w", newest.Int64, known, ErrNewerSchema)
	}
	return nil
}

func (db *DB) applyMigration(ctx context.Context, version int, name, text string) error {
	return db.Write(ctx, func(ctx context.Context, tx *Tx) error {
		if err := lockMigrations(ctx, tx); err != nil {
			return err
		}
		var done bool
		err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM schema_migrations WHERE version = $1)", version).Scan(&done)
		if err != nil || done {
			return err
		}
		for _, statement := range splitStatements(text) {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%.60q: %w", statement, err)
			}
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO schema_migrations (version, name) VALUES ($1, $2)", version, name)
		return err
	})
}

func lockMigrations(ctx context.Context, tx *Tx) error {
	if tx.Dialect != Postgres {
		return nil // the single writer of a locked data folder
	}
	_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", migrationLock)
	return err
}

// splitStatements cuts a migration at its semicolons. Migrations hold no semicolon inside a text or comment; a test
// keeps that so.
func splitStatements(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ";") {
		if s := strings.TrimSpace(part); s != "" {
			out = append(out, s)
		}
	}
	return out
}
