package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	// severLimit bounds the wait for connections that end, and washLimit all that comes after.
	severLimit, washLimit = 5 * time.Second, 10 * time.Second
	// growthLimit bounds the bytes by which a kept database is larger than the template. What deleted rows leave behind stays in
	// the files and slows the tests that come after.
	growthLimit = 4 << 20
)

// sever ends every connection to a database and renames it. That the server renames it proves that nobody is connected, not
// even halfway, and that no transaction is prepared: it looks for both while it keeps others out. With its connection, a
// session's locks, transaction and subscriptions have ended, for it lets go of them before it is no longer counted.
func sever(base, name, next string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false") // or some come as fast as others are ended
	if err == nil {
		err = endOthers(ctx, conn, name)
	}
	if err == nil {
		_, err = conn.Exec(ctx, "ALTER DATABASE "+name+" RENAME TO "+next+"; ALTER DATABASE "+next+" ALLOW_CONNECTIONS true")
	}
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

// endOthers asks in short turns: the server's own wait for a connection that ends is a tenth of a second at least.
func endOthers(ctx context.Context, conn *pgx.Conn, name string) error {
	for {
		var others int
		err := conn.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1", pgx.QueryExecModeExec, name).Scan(&others)
		if err != nil || others == 0 {
			return err
		}
		if _, err := conn.Exec(ctx, "SELECT pg_sleep(0.002)"); err != nil {
			return err
		}
	}
}

// look is what a database is like.
type look struct {
	ask   string              // the statement that asks for the signs
	signs map[string]string   // what no test may change, by what it tells of
	rows  map[string][]string // of each table that has any, sorted
	size  int64               // bytes
}

// templateLook is taken of the template when no copy of it is being made, which needs it to be alone.
var templateLook = sync.OnceValues(func() (*look, error) {
	base, err := postgresTemplate()
	if err != nil {
		return nil, err
	}
	adminMu.Lock()
	defer adminMu.Unlock()
	return lookAt(withDatabase(base, templateName))
})

// firstOwn is the first id of what is not the server's own.
const firstOwn = "16384"

// catalogs builds the statement that asks for the signs. Of each catalog of the database they have the number of rows and the
// sum of the transactions that wrote them. Later transactions have larger numbers, so that both are equal only while every
// row is the one that the template has; a schema that was changed and changed back is another one. What the server notes about
// the data of tables has plans differ, so it is among the signs, but only of the schema's own tables: it looks at its own when
// it likes. The last are those of the database's settings, and of those who wait for its changes, which lie elsewhere.
const catalogs = `SELECT string_agg(format('SELECT %L, count(*) || '' '' || coalesce(sum(xmin::text::bigint), 0) FROM pg_catalog.%I%s',
	relname, relname, CASE relname WHEN 'pg_statistic' THEN ' WHERE starelid >= ` + firstOwn + `' END), ' UNION ALL ') || $$
	UNION ALL SELECT 'estimates', concat_ws(' ', sum(relpages), sum(reltuples), sum(relallvisible)) FROM pg_catalog.pg_class WHERE oid >= ` + firstOwn + `
	UNION ALL SELECT 'settings of the database', concat_ws(' ', datdba, encoding, datcollate, datctype, datistemplate, datallowconn, datconnlimit, dattablespace, datacl)
		FROM pg_catalog.pg_database WHERE datname = current_database()
	UNION ALL SELECT 'settings in the database', string_agg(s::text, ' ') FROM pg_catalog.pg_db_role_setting s, pg_catalog.pg_database d
		WHERE datname = current_database() AND setdatabase = d.oid
	UNION ALL SELECT 'replication slots', count(*)::text FROM pg_catalog.pg_replication_slots WHERE database = current_database()
	UNION ALL SELECT 'subscriptions', count(*)::text FROM pg_catalog.pg_subscription s, pg_catalog.pg_database d
		WHERE datname = current_database() AND subdbid = d.oid $$
	FROM pg_catalog.pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r' AND NOT relisshared`

const (
	databaseSize = `SELECT pg_database_size(current_database())`
	filledTables = `SELECT oid::regclass::text FROM pg_catalog.pg_class WHERE relkind = 'r' AND oid >= ` + firstOwn + ` AND pg_relation_size(oid) > 0`
	// beyondTables finds what has data and is no table.
	beyondTables = `SELECT oid::regclass::text FROM pg_catalog.pg_class WHERE relkind IN ('S', 'm', 'f') AND oid >= ` + firstOwn
)

var errBeyondTables = errors.New("the schema has data that is not in tables")

func lookAt(url string) (*look, error) {
	l := &look{rows: map[string][]string{}}
	return l, visit(url, func(ctx context.Context, conn *pgx.Conn) error {
		beyond, err := texts(ctx, conn, beyondTables)
		if err != nil {
			return err
		}
		if len(beyond) > 0 {
			return fmt.Errorf("%w: %q", errBeyondTables, beyond)
		}
		if err := conn.QueryRow(ctx, catalogs).Scan(&l.ask); err != nil {
			return err
		}
		if err := conn.QueryRow(ctx, databaseSize).Scan(&l.size); err != nil {
			return err
		}
		if l.signs, err = signs(ctx, conn, l.ask); err != nil {
			return err
		}
		tables, err := texts(ctx, conn, filledTables)
		if err != nil {
			return err
		}
		for _, table := range tables {
			if l.rows[table], err = rowsOf(ctx, conn, table); err != nil {
				return err
			}
		}
		return nil
	})
}

var (
	errChanged = errors.New("more than rows has changed")
	errGrown   = errors.New("it has grown")
	errRows    = errors.New("rows of the template have changed")
)

// wash deletes the rows that the template does not have, or says why the database cannot be as the template is.
func wash(url string, want *look) error {
	return visit(url, func(ctx context.Context, conn *pgx.Conn) error {
		if err := want.compare(ctx, conn); err != nil {
			return err
		}
		tables, err := texts(ctx, conn, filledTables)
		if err != nil {
			return err
		}
		var deletions pgx.Batch
		for _, table := range tables {
			if rows := want.rows[table]; len(rows) > 0 {
				deletions.Queue("DELETE FROM ONLY "+table+" AS t WHERE t::text <> ALL ($1)", rows)
			} else {
				deletions.Queue("DELETE FROM ONLY " + table)
			}
		}
		if err := conn.SendBatch(ctx, &deletions).Close(); err != nil {
			return fmt.Errorf("delete rows: %w", err)
		}
		for table, rows := range want.rows {
			there, err := rowsOf(ctx, conn, table)
			if err != nil {
				return err
			}
			if !slices.Equal(there, rows) {
				return fmt.Errorf("%w: in %s", errRows, table)
			}
		}
		return nil
	})
}

// compare finds whether more than rows has changed.
func (l *look) compare(ctx context.Context, conn *pgx.Conn) error {
	there, err := signs(ctx, conn, l.ask)
	if err != nil {
		return err
	}
	if !maps.Equal(there, l.signs) {
		var changed []string
		for of, sign := range l.signs {
			if there[of] != sign {
				changed = append(changed, of)
			}
		}
		slices.Sort(changed)
		return fmt.Errorf("%w: %q", errChanged, changed)
	}
	var size int64
	if err := conn.QueryRow(ctx, databaseSize).Scan(&size); err != nil {
		return err
	}
	if size > l.size+growthLimit {
		return fmt.Errorf("%w by %d KiB", errGrown, (size-l.size)>>10)
	}
	return nil
}

func signs(ctx context.Context, conn *pgx.Conn, ask string) (map[string]string, error) {
	rows, err := conn.Query(ctx, ask)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	var of string
	var sign *string // NULL where there is none
	_, err = pgx.ForEachRow(rows, []any{&of, &sign}, func() error {
		if sign != nil {
			all[of] = *sign
		} else {
			all[of] = ""
		}
		return nil
	})
	return all, err
}

func rowsOf(ctx context.Context, conn *pgx.Conn, table string) ([]string, error) {
	all, err := texts(ctx, conn, "SELECT t::text FROM ONLY "+table+" AS t")
	slices.Sort(all)
	return all, err
}

func texts(ctx context.Context, conn *pgx.Conn, query string) ([]string, error) {
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// visit connects to a database as one for whom foreign keys and triggers do not count, and returns when the server no longer
// counts the connection.
func visit(url string, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), washLimit)
	defer cancel()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	config.RuntimeParams["session_replication_role"] = "replica"
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing is asked twice
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	if err := fn(ctx, conn); err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	return leave(ctx, conn)
}

// leave waits until the server's process has ended, which is when the connection is closed from its side.
func leave(ctx context.Context, conn *pgx.Conn) error {
	raw, err := conn.PgConn().Hijack()
	if err != nil {
		return err
	}
	defer raw.Conn.Close()
	deadline, _ := ctx.Deadline()
	if err := raw.Conn.SetDeadline(deadline); err != nil {
		return err
	}
	raw.Frontend.Send(&pgproto3.Terminate{})
	if err := raw.Frontend.Flush(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, raw.Conn)
	return err
}
