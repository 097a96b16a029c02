package backup

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// aliveFor is for how long a node counts as running after it was last seen.
const aliveFor = 20 * time.Second

// maxComplaint bounds what is shown of what a tool says.
const maxComplaint = 4 << 10

func openPostgres(databaseURL string) (*sql.DB, error) {
	config, err := pgxpool.ParseConfig(databaseURL) // the URL is that of a server's pool, whose settings are nothing to the database
	if err != nil {
		return nil, errors.New("open database: the URL is not a PostgreSQL connection URL") // its error would repeat the password
	}
	return stdlib.OpenDB(*config.ConnConfig), nil
}

// dumpPostgres has pg_dump copy the database as of one moment.
func dumpPostgres(ctx context.Context, from Place, path string) (schema int64, version string, err error) {
	db, err := openPostgres(from.DatabaseURL)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.QueryRowContext(ctx, "SHOW server_version").Scan(&version); err != nil {
		return 0, "", fmt.Errorf("reach database: %w", err)
	}
	if err := tool(ctx, from.DatabaseURL, "pg_dump", "--format=custom", "--no-owner", "--no-privileges", "--no-password", "--file="+path); err != nil {
		return 0, "", err
	}
	if err := db.QueryRowContext(ctx, selectSchema).Scan(&schema); err != nil {
		return 0, "", fmt.Errorf("read schema: %w", err)
	}
	return schema, version, nil
}

// readyPostgres refuses a database with which a server works, and one that is not empty unless it may be replaced.
func readyPostgres(ctx context.Context, databaseURL string, force bool, now time.Time) (err error) {
	db, err := openPostgres(databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tables, err := postgresTables(ctx, db)
	if err != nil {
		return err
	}
	if slices.Contains(tables, "nodes") {
		var alive int
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM nodes WHERE seen_at > $1", now.Add(-aliveFor).UnixMilli()).Scan(&alive); err != nil {
			return fmt.Errorf("look for running servers: %w", err)
		}
		if alive > 0 {
			return fmt.Errorf("database: %w (one that was killed counts as running for %s)", ErrRunning, aliveFor)
		}
	}
	if len(tables) > 0 && !force {
		return fmt.Errorf("database: %w", ErrNotEmpty)
	}
	return nil
}

func postgresTables(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename")
	if err != nil {
		return nil, fmt.Errorf("reach database: %w", err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	return out, rows.Err()
}

// restorePostgres puts a dump into the database, in one transaction of pg_restore's. What was there goes before: tables of
// a newer release would be in the way of its next start.
func restorePostgres(ctx context.Context, databaseURL, path string) (err error) {
	db, err := openPostgres(databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tables, err := postgresTables(ctx, db)
	if err != nil {
		return err
	}
	for _, name := range tables {
		if _, err := db.ExecContext(ctx, `DROP TABLE "`+strings.ReplaceAll(name, `"`, `""`)+`" CASCADE`); err != nil {
			return fmt.Errorf("remove table %s: %w", name, err)
		}
	}
	settings, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		return errors.New("open database: the URL is not a PostgreSQL connection URL")
	}
	return tool(ctx, databaseURL, "pg_restore", "--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges", "--no-password",
		"--dbname="+settings.Database, path)
}

// tool runs a client program of PostgreSQL. How to connect, with the password, goes into its environment: command lines
// can be seen by other users.
func tool(ctx context.Context, databaseURL, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%s is not on PATH: install PostgreSQL's client programs, of the server's version or newer", name)
	}
	environ, err := connection(databaseURL)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") { // what the caller's shell says is of another database
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, environ...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(complaint.String())
		return fmt.Errorf("%s: %w: %s", name, err, text[:min(len(text), maxComplaint)])
	}
	return nil
}

// libpqVariables are the parameters of a URL that libpq takes from its environment.
var libpqVariables = map[string]string{
	"sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "sslcert": "PGSSLCERT", "sslkey": "PGSSLKEY", "sslpassword": "PGSSLPASSWORD",
	"connect_timeout": "PGCONNECT_TIMEOUT", "options": "PGOPTIONS", "channel_binding": "PGCHANNELBINDING",
	"target_session_attrs": "PGTARGETSESSIONATTRS", "service": "PGSERVICE", "passfile": "PGPASSFILE",
}

// connection is a connection URL as the variables of libpq.
func connection(databaseURL string) ([]string, error) {
	settings, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		return nil, errors.New("open database: the URL is not a PostgreSQL connection URL")
	}
	out := []string{"PGHOST=" + settings.Host, "PGPORT=" + strconv.Itoa(int(settings.Port)), "PGUSER=" + settings.User,
		"PGDATABASE=" + settings.Database, "PGAPPNAME=kici backup"}
	if settings.Password != "" {
		out = append(out, "PGPASSWORD="+settings.Password)
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		return nil, errors.New("open database: the URL is not a PostgreSQL connection URL")
	}
	for name, values := range u.Query() {
		if variable, ok := libpqVariables[name]; ok && len(values) > 0 {
			out = append(out, variable+"="+values[0])
		}
	}
	return out, nil
}
