from __future__ import annotations

from lab.databases import Databases, connect, run

SCHEMA = """
    CREATE SCHEMA fedsched;
    CREATE TABLE alembic_version (version_num text);
    INSERT INTO alembic_version VALUES ('0001');
    CREATE SEQUENCE lonely;
    CREATE TABLE parent (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text);
    CREATE TABLE child (parent text, note jsonb, at timestamptz DEFAULT now());
    CREATE TABLE setting (name text PRIMARY KEY, value bigint);
    INSERT INTO setting VALUES ('generation', 1);
"""
DISTURB = """
    INSERT INTO parent (name) VALUES ('a'), ('b');
    INSERT INTO child VALUES ('a', '{}');
    UPDATE setting SET value = 7;
    SELECT nextval('lonely');
"""
CONTENT = """
    SELECT (SELECT count(*) FROM parent), (SELECT count(*) FROM child),
        (SELECT value FROM setting), (SELECT nextval('lonely')),
        (SELECT version_num FROM alembic_version)
"""


async def execute(url: str, statements: str) -> None:
    connection = await connect(url)
    await connection.execute(statements)
    await connection.close()


async def content(url: str) -> list[object]:
    connection = await connect(url)
    row = await connection.fetchrow(CONTENT)
    await connection.execute("INSERT INTO parent (name) VALUES ('next')")
    next_id = await connection.fetchval("SELECT max(id) FROM parent")
    await connection.close()
    return [*row, next_id]


def test_reset_after_changes_restores_rows_seeds_and_sequences(databases: Databases) -> None:
    url = databases.create("reset")
    run(execute(url, SCHEMA))
    databases.remember(url)
    run(execute(url, DISTURB))
    assert run(content(url)) == [2, 1, 7, 2, "0001", 3]
    databases.reset(url)
    assert run(content(url)) == [0, 0, 1, 1, "0001", 1]
    databases.drop(url)


def test_clone_of_a_template_does_not_share_its_rows(databases: Databases) -> None:
    template = databases.create("cloned")
    run(execute(template, SCHEMA))
    clone = databases.create("clone", template=template)
    run(execute(clone, DISTURB))
    assert run(content(clone)) == [2, 1, 7, 2, "0001", 3]
    assert run(content(template)) == [0, 0, 1, 1, "0001", 1]
    databases.drop(clone)
    databases.drop(template)
