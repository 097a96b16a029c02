package backup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // driver "sqlite"
)

// openSQLite opens an existing file. It does not make one.
func openSQLite(path string) (*sql.DB, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "mode=rw&_pragma=busy_timeout(10000)"}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// dumpSQLite copies the database as of one moment, while its server goes on writing.
func dumpSQLite(ctx context.Context, from Place, path string) (schema int64, version string, err error) {
	db, err := openSQLite(filepath.Join(from.DataDir, sqliteName))
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, "VACUUM INTO $1", path); err != nil {
		return 0, "", fmt.Errorf("copy database: %w", err)
	}
	schema, err = schemaOfSQLite(ctx, path)
	return schema, "", err
}

// schemaOfSQLite is the number of the newest migration that a database file has seen.
func schemaOfSQLite(ctx context.Context, path string) (schema int64, err error) {
	db, err := openSQLite(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.QueryRowContext(ctx, selectSchema).Scan(&schema); err != nil {
		return 0, fmt.Errorf("read schema: %w", err)
	}
	return schema, nil
}

// checkSQLite refuses a file that the engine finds damaged.
func checkSQLite(ctx context.Context, path string) (err error) {
	db, err := openSQLite(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check").Scan(&verdict); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if verdict != "ok" {
		return fmt.Errorf("%w: the database says %s", ErrDamaged, verdict)
	}
	return nil
}

const selectSchema = `SELECT max(version) FROM schema_migrations`
