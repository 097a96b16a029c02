package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// maxConnections bounds the connections of one server, unless the URL says pool_max_conns.
	maxConnections = 16
	// rollbackTime bounds the word that undoes a transaction. A connection that does not take it is closed, which undoes it too.
	rollbackTime = 5 * time.Second
)

func connectPostgres(url string) (*DB, error) {
	if !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://") {
		return nil, errors.New("open database: the URL must start with postgres:// (leave it empty for the embedded database)")
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("open database: the URL is not a PostgreSQL connection URL") // its error would repeat the password
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = maxConnections
	}
	p := &postgres{seats: newSeats(config.MaxConns)}
	p.lost.watch(config)
	if err := p.limit(config); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if p.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return &DB{Dialect: Postgres, writer: p, reader: p, pools: []io.Closer{p}}, nil
}

// postgres runs each statement, and each transaction, on any connection of a pool.
type postgres struct {
	pool     *pgxpool.Pool
	seats    seats
	patience time.Duration // how long to wait for an answer; 0 for ever
	queueing time.Duration // how long to wait for a connection; 0 for ever
	lost     lost
}

// acquire takes a connection out of the pool. Its caller closes it.
func (p *postgres) acquire(ctx context.Context) (*lent, error) {
	if p.queueing == 0 {
		return p.lend(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.queueing, errNoConnection)
	defer cancel()
	conn, err := p.lend(ctx)
	if err != nil && context.Cause(ctx) == errNoConnection {
		err = fmt.Errorf("%w within %s: %w", errNoConnection, p.queueing, err)
	}
	return conn, err
}

func (p *postgres) lend(ctx context.Context) (*lent, error) {
	if err := p.seats.take(ctx); err != nil {
		return nil, err
	}
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		p.seats.give()
		return nil, err
	}
	return &lent{Conn: conn, seats: p.seats}, nil
}

// errNoConnection says that all connections are in use, or that none can be made.
var errNoConnection = errors.New("no connection to the database")

// ExecContext is Querier's.
func (p *postgres) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	conn, err := p.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	tag, err := conn.Exec(ctx, query, args...)
	return result{tag}, err
}

// QueryContext is Querier's.
func (p *postgres) QueryContext(ctx context.Context, query string, args ...any) (Rows, error) {
	conn, err := p.acquire(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, query, args...)
	return begun(rows, err, conn)
}

// QueryRowContext is Querier's.
func (p *postgres) QueryRowContext(ctx context.Context, query string, args ...any) Row {
	rows, err := p.QueryContext(ctx, query, args...)
	return onlyRow{rows, err}
}

// All is Querier's.
func (p *postgres) All(ctx context.Context, asks ...Ask) error {
	if len(asks) == 0 {
		return nil
	}
	conn, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var batch pgx.Batch
	for _, ask := range asks {
		batch.Queue(ask.Query, ask.Args...)
	}
	return answer(conn.SendBatch(ctx, &batch), asks)
}

// write is writer's. The transaction begins with its first statement that is waited for. Once it has a connection it is not
// interrupted when ctx ends, as on SQLite: it is short, it has limits of its own, and a watch over every message costs more
// than what it could save.
func (p *postgres) write(ctx context.Context, fn func(ctx context.Context, within transaction) error) error {
	conn, err := p.acquire(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer conn.Close() // one that is still in a transaction is closed
	ctx = context.WithoutCancel(ctx)
	tx := &postgresTx{conn: conn.Conn.Conn(), queue: []statement{{query: begin}}}
	defer tx.undo(ctx) // after a commit this does nothing, and it covers a panic in fn
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.commit(ctx)
}

// close is writer's: the pool is closed as one of DB's.
func (*postgres) close() error { return nil }

// Close closes the pool, once nobody uses it.
func (p *postgres) Close() error {
	p.pool.Close()
	return nil
}

const (
	begin  = "BEGIN"
	commit = "COMMIT"
)

// postgresTx is a transaction on one connection. What nobody waits for travels with what somebody does: a message there
// and back costs more, of the processors and of the time, than most statements do.
type postgresTx struct {
	conn   *pgx.Conn
	queue  []statement // what goes before the next one that is waited for
	failed error       // why part of the transaction is missing, or nothing more can be in it
	hurry  func()      // has the client be impatient again; nil when it is
}

// statement is one whose answer nobody waits for.
type statement struct {
	query     string
	args      []any
	otherwise error // of DoOne
}

// Do is transaction's.
func (tx *postgresTx) Do(_ context.Context, query string, args ...any) error {
	tx.queue = append(tx.queue, statement{query: query, args: args})
	return nil
}

// DoOne is transaction's. The engine itself must find that the statement failed, or it would go on to a commit that is on
// its way already: it divides by the number of rows.
func (tx *postgresTx) DoOne(_ context.Context, otherwise error, query string, args ...any) error {
	tx.queue = append(tx.queue, statement{countersWritten.text(query, counting), args, otherwise})
	return nil
}

var countersWritten memo[string]

func counting(query string) string {
	return "WITH changed AS (" + query + "\nRETURNING 1) SELECT 1 / count(*) FROM changed"
}

// failure is the error of a statement in its caller's words.
func (s statement) failure(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "22012" && s.otherwise != nil { // division_by_zero
		err = s.otherwise
	}
	return fmt.Errorf("%.80q: %w", s.query, err)
}

// ExecContext is Querier's.
func (tx *postgresTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	answers, err := tx.send(ctx, Ask{Query: query, Args: args})
	if err != nil {
		return nil, err
	}
	tag, err := answers.Exec()
	if closing := answers.Close(); err == nil {
		err = closing
	}
	return result{tag}, err
}

// QueryContext is Querier's.
func (tx *postgresTx) QueryContext(ctx context.Context, query string, args ...any) (Rows, error) {
	answers, err := tx.send(ctx, Ask{Query: query, Args: args})
	if err != nil {
		return nil, err
	}
	rows, err := answers.Query()
	return begun(rows, err, answers)
}

// QueryRowContext is Querier's.
func (tx *postgresTx) QueryRowContext(ctx context.Context, query string, args ...any) Row {
	rows, err := tx.QueryContext(ctx, query, args...)
	return onlyRow{rows, err}
}

// All is Querier's.
func (tx *postgresTx) All(ctx context.Context, asks ...Ask) error {
	if len(asks) == 0 {
		return nil
	}
	answers, err := tx.send(ctx, asks...)
	if err != nil {
		return err
	}
	return answer(answers, asks)
}

// Last is transaction's.
func (tx *postgresTx) Last(ctx context.Context, asks ...Ask) error {
	answers, err := tx.send(ctx, append(slices.Clip(asks), Ask{Query: commit})...)
	if err != nil {
		return err
	}
	defer answers.Close() // for who panics with a row
	err = answerSome(answers, asks)
	tag, ending := answers.Exec()
	switch closing := answers.Close(); {
	case err != nil:
		return err
	case ending != nil || closing != nil:
		return fmt.Errorf("commit: %w", cmp.Or(ending, closing))
	case tag.String() != commit:
		return fmt.Errorf("commit: the database answers %s, since a statement before it failed", tag)
	}
	tx.failed = errEnded
	return nil
}

// errEnded says that a transaction goes on behind its last statement.
var errEnded = errors.New("the transaction has been committed")

// send sends what is queued and some statements, and gives the answers to these.
func (tx *postgresTx) send(ctx context.Context, asks ...Ask) (pgx.BatchResults, error) {
	if tx.failed != nil {
		return nil, tx.failed
	}
	var batch pgx.Batch
	for _, s := range tx.queue {
		batch.Queue(s.query, s.args...)
	}
	for _, ask := range asks {
		batch.Queue(ask.Query, ask.Args...)
	}
	before := tx.queue
	tx.queue = nil
	answers := tx.conn.SendBatch(ctx, &batch)
	for _, s := range before {
		if _, err := answers.Exec(); err != nil {
			tx.failed = s.failure(err)
			_ = answers.Close() // with the same error, or one that follows from it
			return nil, tx.failed
		}
	}
	return answers, nil
}

// commit ends a transaction, unless it has ended or nothing was asked of the engine.
func (tx *postgresTx) commit(ctx context.Context) error {
	if tx.failed == errEnded || len(tx.queue) == 1 && tx.queue[0].query == begin {
		return nil
	}
	return tx.Last(ctx)
}

// undo rolls back what is open.
func (tx *postgresTx) undo(ctx context.Context) {
	if tx.hurry != nil {
		tx.hurry()
	}
	if tx.conn.IsClosed() || tx.conn.PgConn().TxStatus() == idle {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_, _ = tx.conn.Exec(ctx, "ROLLBACK") // a connection that cannot is closed by the pool
}

// idle is the status of a connection that is in no transaction (PostgreSQL's protocol, ReadyForQuery).
const idle = 'I'

// answer gives the rows of several queries to those who asked, and there are no others. Who panics with a row must not
// keep the connection.
func answer(answers pgx.BatchResults, asks []Ask) (err error) {
	defer func() {
		if closing := answers.Close(); err == nil {
			err = closing
		}
	}()
	return answerSome(answers, asks)
}

func answerSome(answers pgx.BatchResults, asks []Ask) error {
	for _, ask := range asks {
		rows, err := answers.Query()
		if err != nil {
			return err
		}
		if !ask.idle() {
			err = each(rows, ask)
		}
		rows.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// result is the end of a statement in the words of database/sql.
type result struct{ tag pgconn.CommandTag }

// LastInsertId is sql.Result's. PostgreSQL has none.
func (result) LastInsertId() (int64, error) { return 0, errors.ErrUnsupported }

// RowsAffected is sql.Result's.
func (r result) RowsAffected() (int64, error) { return r.tag.RowsAffected(), nil }

// postgresRows are rows in the words of database/sql. The first is there already, so that the error of a query that
// fails comes from the query.
type postgresRows struct {
	pgx.Rows
	waiting bool      // the first has not been asked for
	answers io.Closer // to close with the rows
}

func begun(rows pgx.Rows, err error, answers io.Closer) (Rows, error) {
	r := &postgresRows{Rows: rows, answers: answers}
	if err == nil {
		r.waiting = rows.Next()
		err = rows.Err()
	}
	if err == nil && r.waiting {
		return r, nil
	}
	if closing := r.Close(); err == nil {
		err = closing
	}
	return r, err
}

// Next is Rows'.
func (r *postgresRows) Next() bool {
	if r.waiting {
		r.waiting = false
		return true
	}
	if r.Rows.Next() {
		return true
	}
	_ = r.Close() // Err has it
	return false
}

// Close is Rows'.
func (r *postgresRows) Close() error {
	r.waiting = false
	r.Rows.Close()
	if closing := r.answers.Close(); closing != nil {
		return closing
	}
	return r.Rows.Err()
}

// onlyRow is the first row of a query.
type onlyRow struct {
	rows Rows
	err  error
}

// Scan is Row's.
func (r onlyRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		return cmp.Or(r.rows.Err(), sql.ErrNoRows)
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	return r.rows.Close()
}
