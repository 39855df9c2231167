package recipes_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/golang-migrate/migrate/v4"
	driver "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/test/recipes"
)

const statements = "CREATE TABLE shop (name TEXT);\nINSERT INTO shop VALUES ('Prague');\n"

func TestMigrationsAreAppliedOnce(t *testing.T) {
	for name, up := range map[string]func(t *testing.T, locks *mutex.Client, db *sql.DB) error{
		"goose": upGoose, "golang-migrate": upMigrate,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := locktest.NewInMemory(t)
				file := filepath.Join(t.TempDir(), "shop.db")
				var replicas sync.WaitGroup
				for range 5 {
					replicas.Go(func() {
						db := open(t, file)
						err := up(t, s.Client(mutex.Options{}), db)
						if err != nil && !errors.Is(err, migrate.ErrNoChange) {
							t.Error(err)
						}
					})
				}
				replicas.Wait()
				shops := 0
				proctest.Must(t, open(t, file).QueryRow("SELECT count(*) FROM shop").Scan(&shops))
				if shops != 1 {
					t.Errorf("%d shops", shops)
				}
			})
		})
	}
}

func open(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(10000)") // it creates its own table at once
	proctest.Must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func upGoose(t *testing.T, locks *mutex.Client, db *sql.DB) error {
	t.Helper()
	files := fstest.MapFS{"1_shop.sql": {Data: []byte("-- +goose Up\n" + statements)}}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	proctest.Must(t, err)
	return recipes.Goose(t.Context(), locks, p)
}

func upMigrate(t *testing.T, locks *mutex.Client, db *sql.DB) error {
	t.Helper()
	files, err := iofs.New(fstest.MapFS{"1_shop.up.sql": {Data: []byte(statements)}}, ".")
	proctest.Must(t, err)
	database, err := driver.WithInstance(db, &driver.Config{})
	proctest.Must(t, err)
	m, err := migrate.NewWithInstance("iofs", files, "sqlite", database)
	proctest.Must(t, err)
	return recipes.Migrate(t.Context(), locks, m)
}
