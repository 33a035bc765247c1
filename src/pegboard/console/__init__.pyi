from pegboard.console.console import Console as Console
from pegboard.console.console import subject_of as subject_of
from pegboard.console.status_document import StatusDocument as StatusDocument
