package store

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed migrations/*.sql
var migrations embed.FS

const createMigrations = `CREATE TABLE IF NOT EXISTS schema_migrations (version BIGINT PRIMARY KEY, name TEXT NOT NULL)`

// migrationLock is the advisory lock under which PostgreSQL servers that start together migrate one after the other.
const migrationLock = 0x6b696369 // "kici"

// migration is one step of the schema.
type migration struct {
	version int    // the number that its file name begins with
	name    string // path of the file
	text    string
}

// readMigrations reads the steps in the order of their numbers. Databases remember those that they have seen by number,
// so it comes from the name: counted by place, it would change for all that follow one that is added or lost between.
func readMigrations(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	out := make([]migration, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		number, _, named := strings.Cut(path.Base(name), "_")
		version, err := strconv.Atoi(number)
		if err != nil || !named || version < 1 || len(number) != 4 {
			return nil, fmt.Errorf("%s: the name of a migration is a number of four digits, an underscore and a word", name)
		}
		out[i] = migration{version, name, string(text)}
	}
	slices.SortFunc(out, func(a, b migration) int { return cmp.Compare(a.version, b.version) })
	for i := 1; i < len(out); i++ {
		if out[i].version == out[i-1].version { // the second would be taken for done
			return nil, fmt.Errorf("%s and %s have one number", out[i-1].name, out[i].name)
		}
	}
	return out, nil
}

// migrate applies the numbered migrations that the database has not seen, each in a transaction of its own.
func (db *DB) migrate(ctx context.Context) error {
	steps, err := readMigrations(migrations)
	if err != nil {
		return err
	}
	if err := db.refuseNewer(ctx, steps[len(steps)-1].version); err != nil {
		return err
	}
	for _, m := range steps {
		if err := db.applyMigration(ctx, m); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
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

func (db *DB) applyMigration(ctx context.Context, m migration) error {
	return db.Write(ctx, func(ctx context.Context, tx *Tx) error {
		if err := lockMigrations(ctx, tx); err != nil {
			return err
		}
		var done bool
		err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM schema_migrations WHERE version = $1)", m.version).Scan(&done)
		if err != nil || done {
			return err
		}
		for _, statement := range splitStatements(m.text) {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%.60q: %w", statement, err)
			}
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO schema_migrations (version, name) VALUES ($1, $2)", m.version, m.name)
		return err
	})
}

func lockMigrations(ctx context.Context, tx *Tx) error {
	if tx.Dialect != Postgres {
		return nil // the single writer of a locked data folder
	}
	if err := tx.TakeTime(ctx); err != nil {
		return err
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
