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

func TestMigrationsAreAppliedOnce(t *testing.T) {
	for name, up := range map[string]func(*testing.T, *mutex.Client, *sql.DB) error{
		"goose": upGoose, "golang-migrate": upMigrate,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := locktest.NewInMemory(t)
				file := filepath.Join(t.TempDir(), "shop.db")
				var replicas sync.WaitGroup
				for range 5 {
					// it creates its own table at once
					db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(10000)")
					proctest.Must(t, err)
					t.Cleanup(func() { db.Close() })
					replicas.Go(func() {
						if err := up(t, s.Client(mutex.Options{}), db); err != nil &&
							!errors.Is(err, migrate.ErrNoChange) {
							t.Error(err)
						}
					})
				}
				replicas.Wait() // none has applied what another one did: the table would be there
			})
		})
	}
}

func upGoose(t *testing.T, locks *mutex.Client, db *sql.DB) error {
	p, err := goose.NewProvider(goose.DialectSQLite3, db, fstest.MapFS{
		"1_shop.sql": {Data: []byte("-- +goose Up\nCREATE TABLE shop (name TEXT);\n")},
	})
	proctest.Must(t, err)
	return recipes.Goose(t.Context(), locks, p)
}

func upMigrate(t *testing.T, locks *mutex.Client, db *sql.DB) error {
	files, err := iofs.New(fstest.MapFS{"1_shop.up.sql": {Data: []byte("CREATE TABLE shop (name TEXT);")}}, ".")
	proctest.Must(t, err)
	database, err := driver.WithInstance(db, &driver.Config{})
	proctest.Must(t, err)
	m, err := migrate.NewWithInstance("iofs", files, "sqlite", database)
	proctest.Must(t, err)
	return recipes.Migrate(t.Context(), locks, m)
}
