"""The table of pages for the documents: `python -m mayfly.node.http.routes_document` prints
docs/operations/http-routes.md."""

from mayfly.node.http.api_routes import ROUTES


def as_markdown() -> str:
    """The table of the documents."""
    lines = [
        "# The pages of the management API",
        "",
        "Made of `node/http/api_routes.py`. Pages may end in a slash; with `GET` there is `HEAD`.",
        "",
        "| method | page | for | what |",
        "|---|---|---|---|",
    ]
    for route in ROUTES:
        users = "everybody" if route.who is None else route.who.name
        lines += [f"| `{route.method}` | `{route.path}` | {users} | {route.about} |"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
